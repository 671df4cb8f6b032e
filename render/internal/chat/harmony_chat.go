package chat

import (
	"warmroute/render/internal/pyvalue"
	"warmroute/render/openai"
)

// chat reads /v1/chat/completions, and /v1/messages after its conversion to a chat.
func (p *hPrompt) chat(r *Renderer, req *request) error {
	q, err := r.build(req, dialect32)
	if err != nil {
		return err
	}
	messages := make([]*pyvalue.Dict, len(q.source.Items))
	for i, item := range q.source.Items {
		m, ok := item.(*pyvalue.Dict)
		if !ok {
			return refuse(Rejected)
		}
		messages[i] = m
	}
	var instructions *string
	if role := hFirstRole(messages); role == "system" || role == "developer" {
		flat, ok, err := hFlat(hObject(messages[0]), true)
		if err != nil {
			return err
		}
		if ok {
			instructions = &flat
		}
		if err := hChecked(messages[0], true); err != nil {
			return err
		}
		messages = messages[1:]
	}
	if err := p.preamble(instructions, q.tools, q.effort); err != nil {
		return err
	}
	names, err := hCallNames(messages)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if err := p.chatMessage(m, names); err != nil {
			return err
		}
	}
	p.out.Features |= hFeatures(q)
	p.out.Setting = r.setting(req, q)
	return nil
}

func hFirstRole(messages []*pyvalue.Dict) string {
	if len(messages) == 0 {
		return ""
	}
	return text(messages[0], "role")
}

// hFeatures returns the features of a chat request.
func hFeatures(q *prompt) (f openai.Features) {
	if q.tools != nil {
		f |= openai.FeatureTools
	}
	if q.effort != "" {
		f |= openai.FeatureReasoning
	}
	if q.kwargs != nil && q.kwargs.Len() > 0 {
		f |= openai.FeatureKwargs
	}
	if q.documents != nil {
		f |= openai.FeatureDocuments
	}
	for _, item := range q.source.Items {
		m, ok := item.(*pyvalue.Dict)
		if !ok {
			continue
		}
		if _, ok := m.GetString("tool_calls"); ok {
			f |= openai.FeatureToolCalls
		}
		if text(m, "role") == "developer" {
			f |= openai.FeatureDeveloper
		}
		if v, _ := m.GetString("content"); v != nil {
			if _, isText := v.(string); !isText {
				f |= openai.FeatureParts
			}
		}
		if has(m, "reasoning") || has(m, "reasoning_content") {
			f |= openai.FeatureReasoning
		}
	}
	return f
}

// hCallNames maps the ids of calls to the names of the functions.
func hCallNames(messages []*pyvalue.Dict) (map[string]string, error) {
	names := map[string]string{}
	for _, m := range messages {
		v, _ := m.GetString("tool_calls")
		calls, ok := v.(*pyvalue.List)
		if v != nil && !ok {
			return nil, refuse(Rejected)
		}
		if calls == nil {
			continue
		}
		for _, item := range calls.Items {
			id, name, _, err := hCallOf(item)
			if err != nil {
				return nil, err
			}
			names[id] = name
		}
	}
	return names, nil
}

// hCallOf reads one call of an assistant.
func hCallOf(v any) (id, name, arguments string, err error) {
	call, ok := v.(*pyvalue.Dict)
	if !ok {
		return "", "", "", refuse(Rejected)
	}
	f, _ := call.GetString("function")
	function, ok := f.(*pyvalue.Dict)
	if kind, _ := call.GetString("type"); kind != "function" || !ok {
		return "", "", "", refuse(Rejected)
	}
	i, _ := call.GetString("id")
	n, _ := function.GetString("name")
	a, _ := function.GetString("arguments")
	id, okID := i.(string)
	name, okName := n.(string)
	arguments, okArguments := a.(string)
	if !okID || !okName || !okArguments {
		return "", "", "", refuse(Rejected)
	}
	return id, name, arguments, nil
}

// hObject returns a message's content, nil for an object: vLLM takes it for a list that it
// does not read.
func hObject(m *pyvalue.Dict) any {
	content, _ := m.GetString("content")
	if _, ok := content.(*pyvalue.Dict); ok {
		return nil
	}
	return content
}

// hChecked refuses a message that vLLM's validation would not pass. objects: its content may
// be an object.
func hChecked(m *pyvalue.Dict, objects bool) error {
	role := text(m, "role")
	content, present := m.GetString("content")
	switch content := content.(type) {
	case string:
	case nil:
		if present && role != "assistant" && role != "function" {
			return refuse(Rejected)
		}
	case *pyvalue.List:
	case *pyvalue.Dict:
		if !objects {
			return refuse(Rejected)
		}
	default:
		_ = content
		return refuse(Rejected)
	}
	for _, key := range []string{"name", "task", "reasoning", "reasoning_content", "tool_call_id"} {
		if v, ok := m.GetString(key); ok {
			if _, isText := v.(string); !isText && v != nil {
				return refuse(UnknownShape)
			}
		}
	}
	if has(m, "tools") || role != "assistant" && has(m, "tool_calls") {
		return refuse(UnknownShape)
	}
	return nil
}

func (p *hPrompt) chatMessage(m *pyvalue.Dict, names map[string]string) error {
	if err := hChecked(m, text(m, "role") == "tool"); err != nil {
		return err
	}
	content, _ := m.GetString("content")
	switch role := text(m, "role"); role {
	case "assistant":
		return p.assistant(m, content)
	case "tool":
		flat, _, err := hFlat(hObject(m), true)
		if err != nil {
			return err
		}
		p.add(hMsg{author: hFunctions + names[text(m, "tool_call_id")], result: true, contents: []string{flat}})
	case "system", "developer":
		flat, ok, err := hFlat(content, true)
		if err != nil {
			return err
		}
		if ok {
			p.add(p.instructed(role, flat))
		}
	case "user":
		contents, err := hContents(content, true)
		if err != nil {
			return err
		}
		p.add(hMsg{author: role, contents: contents})
	default:
		return objection("a message's role is unknown")
	}
	return nil
}

// hContents returns the texts of a content one by one.
func hContents(content any, chat bool) ([]string, error) {
	if list, ok := content.(*pyvalue.List); ok {
		return hTexts(list, chat)
	}
	text, _ := content.(string)
	return []string{text}, nil
}

func (p *hPrompt) assistant(m *pyvalue.Dict, content any) error {
	reasoning := text(m, "reasoning")
	if !has(m, "reasoning") {
		reasoning = text(m, "reasoning_content")
	}
	thought := hMsg{author: "assistant", channel: "analysis", contents: []string{reasoning}}
	if calls := list(m, "tool_calls"); calls != nil {
		flat, _, err := hFlat(content, true)
		if err != nil {
			return err
		}
		if flat != "" {
			p.add(hMsg{author: "assistant", channel: "commentary", contents: []string{flat}})
		}
		if reasoning != "" {
			p.add(thought)
		}
		for _, item := range calls.Items {
			_, name, arguments, _ := hCallOf(item) // hCallNames has returned its error
			if err := p.call(name, arguments); err != nil {
				return err
			}
		}
		return nil
	}
	if reasoning != "" {
		p.add(thought)
	}
	contents, err := hContents(content, true)
	if err != nil || len(contents) == 0 || contents[0] == "" {
		return err
	}
	p.add(hMsg{author: "assistant", channel: "final", contents: contents})
	return nil
}
