package jinja

import "warmroute/render/internal/pyvalue"

// reasoningFields are the names a message's reasoning goes by, the standard
// one first.
var reasoningFields = []string{"reasoning_content", "thinking", "reasoning"}

// AliasReasoning gives every message that has its reasoning under one name the
// others that templates read, as transformers does before rendering from 5.23
// on (5.19 does not). messages and its dicts are not changed; what needs no
// change is shared.
func AliasReasoning(messages any) any {
	l, ok := messages.(*pyvalue.List)
	if !ok {
		return messages
	}
	out := l
	for i, m := range l.Items {
		d, ok := m.(*pyvalue.Dict)
		if !ok {
			continue
		}
		var reasoning any
		for _, f := range reasoningFields {
			if reasoning, _ = d.GetString(f); reasoning != nil {
				break
			}
		}
		if reasoning == nil {
			continue
		}
		if out == l {
			out = &pyvalue.List{Items: append([]any(nil), l.Items...)}
		}
		aliased := pyvalue.NewDict()
		aliased.Set("thinking", reasoning)
		for k, v := range d.All() {
			aliased.Set(k, v)
		}
		aliased.Set("reasoning_content", reasoning)
		out.Items[i] = aliased
	}
	return out
}
