package jinja

import "warmroute/render/internal/pyvalue"

// reasoningFields are the names of a message's reasoning, the standard name first.
var reasoningFields = []string{"reasoning_content", "thinking", "reasoning"}

// AliasReasoning copies the reasoning of a message to the names under which templates
// read it, as transformers does before rendering from 5.23 on (5.19 does not). It does
// not change messages or its dicts; the result shares messages that need no copy.
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
