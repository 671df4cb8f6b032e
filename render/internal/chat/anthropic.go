package chat

import (
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// anthropic builds the prompt of /v1/messages: AnthropicServingMessages'
// conversion to a chat request.
func (r *Renderer) anthropic(req *request, d dialect) (*prompt, error) {
	p := &prompt{defaults: true, generation: true}
	r.begin(req.work, p, d, true)
	var err error
	if p.kwargs, err = dictField(req, openai.FieldChatTemplateKwargs); err != nil {
		return nil, err
	}
	if req.MaxTokens <= 0 {
		return nil, refuse(Rejected)
	}
	if err := p.anthropicTools(req, r.o.ExcludeToolsWhenToolChoiceNone); err != nil {
		return nil, err
	}
	if err := p.anthropicEffort(req, r.disabledEffort); err != nil {
		return nil, err
	}
	p.openai = r.openaiFormat(p.tools != nil, d)
	messages, err := listField(req, openai.FieldMessages)
	if err != nil {
		return nil, err
	}
	a := blocks{work: req.work, d: d, merge: r.mergeInline, messages: pyvalue.NewList()}
	system, err := parseField(req, openai.FieldSystem)
	if err != nil {
		return nil, err
	}
	if err := a.system(system, messages); err != nil {
		return nil, err
	}
	for _, m := range messages.Items {
		if err := a.add(m.(*pyvalue.Dict)); err != nil {
			return nil, err
		}
	}
	p.source = a.messages
	return p, nil
}

// anthropicTools renames input_schema to parameters, whose type defaults to object.
func (p *prompt) anthropicTools(req *request, exclude bool) error {
	choice, err := dictField(req, openai.FieldToolChoice)
	if err != nil {
		return err
	}
	kind := ""
	if choice != nil {
		kind, _ = str(choice, "type")
		switch kind {
		case "auto", "any", "none":
		case "tool":
			if name, ok := str(choice, "name"); !ok || name == "" {
				return refuse(Rejected)
			}
		default:
			return refuse(Rejected)
		}
	}
	list, err := listField(req, openai.FieldTools)
	if list == nil || err != nil || kind == "none" && exclude {
		return err
	}
	tools := pyvalue.NewList()
	for _, item := range list.Items {
		tool, ok := item.(*pyvalue.Dict)
		if !ok {
			return refuse(Rejected)
		}
		s, _ := tool.GetString("input_schema")
		schema, ok := s.(*pyvalue.Dict)
		if !ok {
			return refuse(Rejected)
		}
		if _, ok := schema.GetString("type"); !ok {
			schema = schema.Copy()
			schema.Set("type", "object")
		}
		fields := dict("parameters", schema)
		for _, key := range []string{"name", "description", "strict", "defer_loading"} {
			if v, _ := tool.GetString(key); v != nil && (key != "strict" || p.d.strictTools) {
				fields.Set(key, v)
			}
		}
		function, err := p.d.function(fields, nil)
		if err != nil {
			return err
		}
		tools.Items = append(tools.Items, dict("type", "function", "function", function))
	}
	p.tools = tools
	return nil
}

// anthropicEffort reads output_config.effort, and thinking: disabled thinking overrides
// the effort. 0.21 has neither field.
func (p *prompt) anthropicEffort(req *request, disabled string) error {
	if !p.d.anthropic32 {
		return nil
	}
	config, err := dictField(req, openai.FieldOutputConfig)
	if err != nil {
		return err
	}
	if config != nil {
		effort, ok := str(config, "effort")
		if !ok || effort == "none" || effort == "minimal" {
			return refuse(Rejected)
		}
		p.effort = effort
	}
	thinking, err := dictField(req, openai.FieldThinking)
	if thinking == nil || err != nil {
		return err
	}
	switch kind, _ := str(thinking, "type"); kind {
	case "adaptive":
	case "enabled":
		v, _ := thinking.GetString("budget_tokens")
		if budget, ok := v.(int64); !ok || budget < 1024 || budget >= int64(req.MaxTokens) {
			return refuse(Rejected)
		}
	case "disabled":
		if disabled == "" {
			return refuse(RenderDiffers)
		}
		p.effort = disabled
	default:
		return refuse(Rejected)
	}
	return nil
}

// blocks converts Anthropic messages to chat messages.
type blocks struct {
	work     *work.Budget
	d        dialect
	merge    merging
	messages *pyvalue.List
}

func (a *blocks) push(m *pyvalue.Dict) { a.messages.Items = append(a.messages.Items, m) }

// system writes the leading system message. If the template allows a single system
// message, the leading one includes the inline ones.
func (a *blocks) system(v any, messages *pyvalue.List) error {
	text, given, err := systemBlocks(v)
	if err != nil {
		return err
	}
	texts := []string{text}
	for _, item := range messages.Items {
		a.work.Step(fieldSteps)
		m, ok := item.(*pyvalue.Dict)
		if !ok {
			return refuse(Rejected)
		}
		if role, _ := m.GetString("role"); role != "system" {
			continue
		}
		switch {
		case !a.d.anthropic32:
			return refuse(Rejected)
		case a.merge == mergeUnknown:
			return refuse(UnknownShape)
		case a.merge == mergeYes:
			inline, err := inlineSystem(m)
			if err != nil {
				return err
			}
			texts = append(texts, inline)
		}
	}
	text = join(a.work, texts, "")
	// 0.21 writes the message whenever blocks were given, even if no text is left.
	if text != "" || given && !a.d.anthropic32 {
		a.push(dict("role", "system", "content", text))
	}
	return nil
}

// systemBlocks joins the texts of a system prompt. given: v is a non-empty list.
func systemBlocks(v any) (text string, given bool, err error) {
	switch v := v.(type) {
	case nil:
		return "", false, nil
	case string:
		return v, false, nil
	case *pyvalue.List:
		text, err = blockTexts(v)
		return text, len(v.Items) > 0, err
	}
	return "", false, refuse(Rejected)
}

// blockTexts joins the texts of a system message's blocks, without billing lines.
func blockTexts(list *pyvalue.List) (string, error) {
	var b strings.Builder
	for _, item := range list.Items {
		block, ok := item.(*pyvalue.Dict)
		if !ok {
			return "", refuse(Rejected)
		}
		kind, _ := str(block, "type")
		text, ok := str(block, "text")
		if kind != "text" || !ok {
			return "", refuse(UnknownShape)
		}
		if !strings.HasPrefix(text, billingHeader) {
			b.WriteString(text)
		}
	}
	return b.String(), nil
}

func inlineSystem(m *pyvalue.Dict) (string, error) {
	switch v, _ := m.GetString("content"); v := v.(type) {
	case string:
		if strings.HasPrefix(v, billingHeader) {
			return "", nil
		}
		return v, nil
	case *pyvalue.List:
		return blockTexts(v)
	}
	return "", refuse(Rejected)
}

func (a *blocks) add(m *pyvalue.Dict) error {
	a.work.Step(messageSteps)
	a.work.Memory(messageBytes)
	role, _ := str(m, "role")
	switch role {
	case "user", "assistant":
	case "system":
		text, err := inlineSystem(m)
		if err == nil && a.merge == mergeNo && text != "" {
			a.push(dict("role", "system", "content", text))
		}
		return err
	default:
		return refuse(Rejected)
	}
	out := dict("role", role)
	switch v, _ := m.GetString("content"); v := v.(type) {
	case string:
		out.Set("content", v)
	case *pyvalue.List:
		if err := a.blocks(out, role, v); err != nil {
			return err
		}
	default:
		return refuse(Rejected)
	}
	if _, ok := out.GetString("content"); ok || role != "user" {
		a.push(out)
	}
	return nil
}

// blocks converts the blocks of one message. A user's tool results become messages of
// their own, before the rest of the user's message.
func (a *blocks) blocks(out *pyvalue.Dict, role string, list *pyvalue.List) error {
	parts, calls := pyvalue.NewList(), pyvalue.NewList()
	var reasoning []string
	thought := false
	for _, item := range list.Items {
		a.work.Step(messageSteps)
		a.work.Memory(messageBytes)
		block, ok := item.(*pyvalue.Dict)
		if !ok {
			return refuse(Rejected)
		}
		kind, _ := str(block, "type")
		var err error
		switch kind {
		case "text":
			text, ok := str(block, "text")
			if !ok {
				return refuse(Rejected)
			}
			if text != "" {
				parts.Items = append(parts.Items, dict("type", "text", "text", text))
			}
		case "thinking":
			text, ok := str(block, "thinking")
			if !ok {
				return refuse(Rejected)
			}
			thought = thought || has(block, "thinking")
			reasoning = append(reasoning, text)
		case "redacted_thinking", "tool_reference":
		case "tool_use":
			err = a.toolUse(calls, block)
		case "tool_result":
			err = a.toolResult(parts, role, block)
		default:
			return refuse(Multimodal)
		}
		if err != nil {
			return err
		}
	}
	if thought {
		out.Set("reasoning", join(a.work, reasoning, ""))
	}
	if len(calls.Items) > 0 {
		out.Set("tool_calls", calls)
	}
	switch len(parts.Items) {
	case 0:
	case 1:
		text, _ := parts.Items[0].(*pyvalue.Dict).GetString("text")
		out.Set("content", text)
	default:
		out.Set("content", parts)
	}
	return nil
}

// toolUse writes a call. Like vLLM it dumps the call's input to JSON, because the later
// check of the arguments reads JSON.
func (a *blocks) toolUse(calls *pyvalue.List, block *pyvalue.Dict) error {
	id, okID := str(block, "id")
	name, okName := str(block, "name")
	v, _ := block.GetString("input")
	input, ok := v.(*pyvalue.Dict)
	if !okID || !okName || v != nil && !ok {
		return refuse(Rejected)
	}
	if id == "" {
		return refuse(UnknownShape) // vLLM makes up an id from its clock
	}
	if input == nil {
		input = pyvalue.NewDict()
	}
	o := pyvalue.DefaultDumps()
	o.Work = a.work
	arguments, err := pyvalue.AppendDumps(nil, input, o)
	if err != nil {
		return refuse(UnknownShape)
	}
	calls.Items = append(calls.Items, dict("id", id, "type", "function",
		"function", dict("name", name, "arguments", string(arguments))))
	return nil
}

func (a *blocks) toolResult(parts *pyvalue.List, role string, block *pyvalue.Dict) error {
	content, _ := block.GetString("content")
	id, ok := str(block, "tool_use_id")
	list, isList := content.(*pyvalue.List)
	text, isText := content.(string)
	if !ok || content != nil && !isList && !isText {
		return refuse(Rejected)
	}
	if role != "user" {
		if pyvalue.Truth(content) {
			s, err := pyvalue.Str(a.work, content)
			if err != nil {
				return refuse(UnknownShape)
			}
			text = s
		}
		parts.Items = append(parts.Items, dict("type", "text", "text", "Tool result: "+text))
		return nil
	}
	references := pyvalue.NewList()
	if isList {
		var err error
		if text, err = resultText(list, references); err != nil {
			return err
		}
	}
	a.push(dict("role", "tool", "tool_call_id", id, "content", text))
	if len(references.Items) > 0 {
		a.push(dict("role", "tool", "tool_call_id", id, "content", references))
	}
	return nil
}

// resultText joins the texts of a tool result and collects its tool references. It
// ignores items of other types.
func resultText(list, references *pyvalue.List) (string, error) {
	texts := make([]string, 0, len(list.Items))
	for _, item := range list.Items {
		d, ok := item.(*pyvalue.Dict)
		if !ok {
			return "", refuse(Rejected)
		}
		switch kind, _ := str(d, "type"); kind {
		case "text":
			v, present := d.GetString("text")
			text, ok := v.(string)
			if present && !ok {
				return "", refuse(Rejected)
			}
			texts = append(texts, text)
		case "image":
			return "", refuse(Multimodal)
		case "tool_reference":
			name, _ := str(d, "tool_name")
			if name == "" {
				name, _ = str(d, "name")
			}
			if name != "" {
				references.Items = append(references.Items, dict("type", "tool_reference", "name", name))
			}
		}
	}
	return strings.Join(texts, "\n"), nil
}
