package chat

import (
	"slices"
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/openai"
)

// responses reads /v1/responses.
func (p *hPrompt) responses(r *Renderer, req *request) error {
	if err := stored(req); err != nil {
		return err
	}
	q := &prompt{special: true}
	r.begin(req.work, q, dialect32, false)
	if err := q.responsesKnobs(req); err != nil {
		return err
	}
	if q.kwargs != nil && has(q.kwargs, "chat_template") {
		return objection("a chat template is passed with the request")
	}
	r.mapEffort(q)
	tools, declared, err := q.harmonyTools(req)
	if err != nil {
		return err
	}
	instructions, err := optionalText(req, openai.FieldInstructions)
	if err != nil {
		return err
	}
	input, err := parseField(req, openai.FieldInput)
	if err != nil {
		return err
	}
	items, isList := input.(*pyvalue.List)
	rest := []any{}
	if isList {
		rest = items.Items
	}
	if instructions == nil && len(rest) > 0 {
		if item, ok := rest[0].(*pyvalue.Dict); ok && (text(item, "role") == "system" || text(item, "role") == "developer") {
			if err := hItem(item); err != nil {
				return err
			}
			content, _ := item.GetString("content")
			flat, ok, err := hFlat(content, false)
			if err != nil {
				return err
			}
			if ok {
				instructions = &flat
			}
			rest = rest[1:]
		}
	}
	if err := p.preamble(instructions, tools, q.effort); err != nil {
		return err
	}
	p.features(q, declared)
	p.out.Setting = r.setting(req, q)
	previous, err := listField(req, openai.FieldPreviousInputMessages)
	if err != nil {
		return err
	}
	if err := p.previous(previous); err != nil {
		return err
	}
	if s, ok := input.(string); ok {
		if s != "" || previous == nil || len(previous.Items) == 0 {
			p.add(hMsg{author: "user", contents: []string{s}})
		}
		return nil
	} else if !isList {
		return refuse(Rejected)
	}
	names := map[string]string{}
	for _, v := range rest {
		item, ok := v.(*pyvalue.Dict)
		if !ok {
			return refuse(Rejected)
		}
		if err := p.item(item, names); err != nil {
			return err
		}
	}
	return nil
}

// previous adds the messages of an earlier request, without its instructions. They have
// the form of a chat's or of harmony's own messages.
func (p *hPrompt) previous(list *pyvalue.List) error {
	if list == nil {
		return nil
	}
	for _, v := range list.Items {
		m, ok := v.(*pyvalue.Dict)
		if !ok {
			return refuse(Rejected)
		}
		role, channel := text(m, "role"), ""
		if author, _ := m.GetString("author"); author != nil {
			a, ok := author.(*pyvalue.Dict)
			if !ok || !only(a, "role") || !only(m, "author", "content", "channel") {
				return refuse(UnknownShape)
			}
			role, channel = text(a, "role"), text(m, "channel")
		} else if !only(m, "role", "content") {
			return refuse(UnknownShape)
		}
		content, _ := m.GetString("content")
		if content == nil {
			return refuse(UnknownShape)
		}
		switch role {
		case "system", "developer":
		case "user", "assistant":
			contents, err := hContents(content, false)
			if err != nil {
				return err
			}
			p.add(hMsg{author: role, channel: channel, contents: contents})
		default:
			return refuse(UnknownShape)
		}
	}
	return nil
}

func (p *hPrompt) features(q *prompt, tools bool) {
	if tools {
		p.out.Features |= openai.FeatureTools
	}
	if q.effort != "" {
		p.out.Features |= openai.FeatureReasoning
	}
	if q.kwargs != nil && q.kwargs.Len() > 0 {
		p.out.Features |= openai.FeatureKwargs
	}
}

// harmonyTools returns the functions in the form of a chat's tools; nil if the request
// declares none. declared: it declares tools of some kind.
func (p *prompt) harmonyTools(req *request) (functions *pyvalue.List, declared bool, err error) {
	list, err := listField(req, openai.FieldTools)
	if err != nil {
		return nil, false, err
	}
	if _, err = dialect32.responsesChoice(req, list); err != nil || list == nil {
		return nil, false, err
	}
	custom, unsupported := false, false
	tools := pyvalue.NewList()
	for _, item := range list.Items {
		if _, err := dialect32.shown(item); err != nil {
			return nil, false, err
		}
		tool := item.(*pyvalue.Dict)
		kind := text(tool, "type")
		if kind != "function" {
			p.served = append(p.served, tool)
		}
		switch kind {
		case "function":
			custom = true
			function, err := dialect32.function(tool, nil)
			if err != nil {
				return nil, false, err
			}
			tools.Items = append(tools.Items, dict("type", "function", "function", function))
		case "web_search_preview", "code_interpreter": // nothing, without a tool server
		case "mcp":
			unsupported = true
		default:
			custom, unsupported = true, true
		}
	}
	switch {
	case !custom:
		return nil, len(list.Items) > 0, nil
	case unsupported:
		return nil, false, objection("a tool's type is not supported")
	}
	return tools, true, nil
}

// hItem refuses items with unknown fields.
func hItem(item *pyvalue.Dict) error {
	status, ok := str(item, "status")
	if !ok || !slices.Contains([]string{"", "in_progress", "completed", "incomplete"}, status) {
		return refuse(Rejected)
	}
	if kind := text(item, "type"); kind == "custom_tool_call" || kind == "custom_tool_call_output" {
		return objection("Unknown input type")
	}
	known := map[string][]string{
		"message":              {"type", "role", "content", "status", "id", "phase"},
		"function_call":        {"type", "id", "call_id", "name", "arguments", "status", "namespace", "caller", "async"},
		"function_call_output": {"type", "id", "call_id", "output", "status", "namespace", "caller", "name"},
		"reasoning":            {"type", "id", "summary", "content", "status", "encrypted_content"},
	}[either(text(item, "type") == "", "message", text(item, "type"))]
	if known == nil || !only(item, known...) {
		return refuse(UnknownShape)
	}
	return nil
}

// item adds one input item. names are the functions of the calls so far.
func (p *hPrompt) item(item *pyvalue.Dict, names map[string]string) error {
	if err := hItem(item); err != nil {
		return err
	}
	switch text(item, "type") {
	case "function_call":
		p.out.Features |= openai.FeatureToolCalls
		for _, key := range []string{"call_id", "name", "arguments"} {
			if v, _ := item.GetString(key); v == nil {
				return refuse(Rejected)
			} else if _, ok := v.(string); !ok {
				return refuse(Rejected)
			}
		}
		names[text(item, "call_id")] = text(item, "name")
		return p.call(text(item, "name"), text(item, "arguments"))
	case "function_call_output":
		id, ok := str(item, "call_id")
		if !ok {
			return refuse(Rejected)
		}
		name, known := names[id]
		if !known {
			return objection("No call message found for a tool's output")
		}
		v, _ := item.GetString("output")
		output, ok := v.(string)
		if !ok {
			return objection("a tool's output is not a text")
		}
		p.add(hMsg{author: hFunctions + name, result: true, contents: []string{output}})
		return nil
	case "reasoning":
		return p.reasoning(item)
	}
	return p.itemMessage(item)
}

func (p *hPrompt) reasoning(item *pyvalue.Dict) error {
	p.out.Features |= openai.FeatureReasoning
	s, _ := item.GetString("summary")
	if summary, ok := s.(*pyvalue.List); !ok || !texts(summary, "summary_text") {
		return refuse(Rejected)
	}
	v, _ := item.GetString("content")
	content, ok := v.(*pyvalue.List)
	if v != nil && (!ok || !texts(content, "reasoning_text")) {
		return refuse(Rejected)
	}
	if v == nil || len(content.Items) == 0 {
		return nil
	}
	thoughts := make([]string, len(content.Items))
	for i, part := range content.Items {
		thoughts[i] = text(part.(*pyvalue.Dict), "text")
	}
	p.add(hMsg{author: "assistant", channel: "analysis", contents: []string{strings.Join(thoughts, "\n")}})
	return nil
}

func (p *hPrompt) itemMessage(item *pyvalue.Dict) error {
	role := text(item, "role")
	content, _ := item.GetString("content")
	list, isList := content.(*pyvalue.List)
	if _, isText := content.(string); !isText && !isList {
		return refuse(Rejected)
	}
	if isList {
		p.out.Features |= openai.FeatureParts
	}
	channel, kind := "", "input_text"
	switch role {
	case "system", "developer":
		p.out.Features |= openai.FeatureDeveloper
		flat, _, err := hFlat(content, false)
		if err == nil && flat != "" {
			p.add(p.instructed(role, flat))
		}
		return err
	case "assistant":
		channel = "final"
		if isList && text(item, "type") != "" && !texts(list, kind) {
			kind = "output_text"
		}
	case "user":
	default:
		return refuse(Rejected)
	}
	if isList && !texts(list, kind) {
		return refuse(UnknownShape)
	}
	contents, err := hContents(content, false)
	if err == nil {
		p.add(hMsg{author: role, channel: channel, contents: contents})
	}
	return err
}

// optionalText reads a text; nil if it is absent or null.
func optionalText(req *request, f openai.Field) (*string, error) {
	if raw := req.Raw(f); raw == nil || string(raw) == "null" {
		return nil, nil
	}
	s, err := textField(req, f)
	return &s, err
}
