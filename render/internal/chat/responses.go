package chat

import (
	"slices"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// responses builds the prompt of /v1/responses as ResponsesRequest,
// construct_input_messages and construct_tool_dicts do. It renders prompts that are
// wholly in the body; only the replica has stored responses.
func (r *Renderer) responses(req *request, d dialect) (*prompt, error) {
	if req.Raw(openai.FieldPreviousInputMessages) != nil {
		return nil, refuse(StoredState)
	}
	if err := stored(req); err != nil {
		return nil, err
	}
	// The tokenizer adds special tokens on this route, by TokenizeParams' default.
	p := &prompt{defaults: d.responsesKwargs, generation: true, special: true}
	r.begin(req.work, p, d, false)
	if err := p.responsesKnobs(req); err != nil {
		return nil, err
	}
	if err := p.responsesTools(req, r.o.ExcludeToolsWhenToolChoiceNone, r.o.ResponsesToolFields); err != nil {
		return nil, err
	}
	p.openai = r.openaiFormat(p.tools != nil, d)
	instructions, err := textField(req, openai.FieldInstructions)
	if err != nil {
		return nil, err
	}
	messages := pyvalue.NewList()
	if instructions != "" {
		messages.Items = append(messages.Items, dict("role", "system", "content", instructions))
	}
	input, err := parseField(req, openai.FieldInput)
	if err != nil {
		return nil, err
	}
	switch input := input.(type) {
	case string:
		messages.Items = append(messages.Items, dict("role", "user", "content", input))
	case *pyvalue.List:
		items := items{work: req.work, d: d, messages: messages}
		for _, item := range input.Items {
			if err := items.add(item); err != nil {
				return nil, err
			}
		}
		p.continues = items.partial
		p.generation = !items.partial
	}
	p.source = messages
	return p, nil
}

// stored refuses a prompt that begins with a stored response or prompt.
func stored(req *request) error {
	if req.Raw(openai.FieldPreviousResponseID) != nil || req.Raw(openai.FieldPrompt) != nil {
		return refuse(StoredState)
	}
	return nil
}

func (p *prompt) responsesKnobs(req *request) error {
	switch truncation, err := textField(req, openai.FieldTruncation); {
	case err != nil:
		return err
	case truncation != "" && truncation != "auto" && truncation != "disabled":
		return refuse(Rejected)
	}
	reasoning, err := dictField(req, openai.FieldReasoning)
	if err != nil {
		return err
	}
	if reasoning != nil {
		effort, ok := str(reasoning, "effort")
		if !ok {
			return refuse(Rejected)
		}
		p.effort = effort
	}
	kwargs, err := dictField(req, openai.FieldChatTemplateKwargs)
	if p.d.responsesKwargs {
		p.kwargs = kwargs
	}
	return err
}

// items converts input items to chat messages.
type items struct {
	work     *work.Budget
	d        dialect
	messages *pyvalue.List
	partial  bool // the last item is an unfinished message
}

// last returns the last message if it is the assistant's and the dialect merges the items
// of a turn, else nil.
func (t *items) last() *pyvalue.Dict {
	if n := len(t.messages.Items); t.d.mergeItems && n > 0 {
		m := t.messages.Items[n-1].(*pyvalue.Dict)
		if role, _ := m.GetString("role"); role == "assistant" {
			return m
		}
	}
	return nil
}

func (t *items) push(m *pyvalue.Dict) { t.messages.Items = append(t.messages.Items, m) }

// give sets key on the assistant's last message, or starts a new message.
func (t *items) give(key string, v any) {
	if m := t.last(); m != nil && !has(m, key) {
		m.Set(key, v)
		return
	}
	t.push(dict("role", "assistant", key, v))
}

func (t *items) add(v any) error {
	t.work.Step(messageSteps)
	t.work.Memory(messageBytes)
	item, ok := v.(*pyvalue.Dict)
	if !ok {
		return refuse(Rejected)
	}
	kind, ok := str(item, "type")
	t.partial = false
	if t.d.mergeItems && kind == "custom_tool_call" {
		return t.call(item)
	}
	status, isText := str(item, "status")
	if t.d.mergeItems && kind == "custom_tool_call_output" {
		return t.output(item)
	}
	if !ok || !isText || !slices.Contains([]string{"", "in_progress", "completed", "incomplete"}, status) {
		return refuse(Rejected)
	}
	unfinished := status == "in_progress" || status == "incomplete"
	t.partial = unfinished && (kind == "" || kind == "message" || kind == "reasoning")
	switch kind {
	case "", "message":
		return t.message(item, kind)
	case "function_call":
		return t.call(item)
	case "function_call_output":
		return t.output(item)
	case "reasoning":
		return t.reasoning(item)
	}
	return refuse(UnknownShape)
}

// known reports whether vLLM drops all keys of an item besides own, as from 0.32 on, or there are
// no others.
func (t *items) known(item *pyvalue.Dict, own ...string) bool {
	return t.d.mergeItems || only(item, own...)
}

func (t *items) message(item *pyvalue.Dict, kind string) error {
	role, _ := item.GetString("role")
	content, _ := item.GetString("content")
	if !t.known(item, "type", "role", "content", "status", "id", "phase") {
		return refuse(UnknownShape)
	}
	switch role {
	case "user", "system", "developer":
		list, ok := content.(*pyvalue.List)
		if ok && !texts(list, "input_text") || has(item, "name") || has(item, "task") || has(item, "tools") {
			return refuse(UnknownShape) // a chat's message would have them
		}
		t.push(dict("role", role, "content", content))
		return nil
	case "assistant":
	default:
		return refuse(Rejected)
	}
	text, ok := content.(string)
	if list, isList := content.(*pyvalue.List); isList {
		// Only an item of type message may have output text, but each may have input text;
		// vLLM reads the first part alone.
		output := kind != "" && texts(list, "output_text")
		if len(list.Items) == 0 || len(list.Items) > 1 && noted(list) || !output && !(t.d.mergeItems && texts(list, "input_text")) {
			return refuse(UnknownShape)
		}
		text, ok = str(list.Items[0].(*pyvalue.Dict), "text")
	} else if !t.d.mergeItems {
		t.push(dict("role", role, "content", content))
		return nil
	}
	if !ok {
		return refuse(Rejected)
	}
	t.give("content", text)
	return nil
}

// noted reports whether a part has notes that may be none that vLLM knows: it then takes the
// message for one of the client, and all of its parts.
func noted(list *pyvalue.List) bool {
	for _, part := range list.Items {
		for _, key := range [...]string{"annotations", "logprobs"} {
			if v, ok := part.(*pyvalue.Dict); ok && has(v, key) {
				notes, _ := v.GetString(key)
				if list, ok := notes.(*pyvalue.List); !ok || len(list.Items) > 0 {
					return true
				}
			}
		}
	}
	return false
}

// texts reports whether every part has the type kind.
func texts(list *pyvalue.List, kind string) bool {
	for _, v := range list.Items {
		d, ok := v.(*pyvalue.Dict)
		if !ok || !explicit(d) {
			return false
		}
		t, _ := d.GetString("type")
		text, _ := d.GetString("text")
		if _, ok := text.(string); !ok || t != kind {
			return false
		}
	}
	return true
}

// call adds a call of a function or of a custom tool.
func (t *items) call(item *pyvalue.Dict) error {
	id, _ := item.GetString("call_id")
	name, _ := item.GetString("name")
	arguments, _ := item.GetString("arguments")
	custom := text(item, "type") == "custom_tool_call"
	if custom {
		arguments, _ = item.GetString("input")
	}
	for _, v := range []any{id, name, arguments} {
		if _, ok := v.(string); !ok {
			return refuse(Rejected)
		}
	}
	space, ok := str(item, "namespace")
	switch {
	case custom:
		t.work.Make(2 * len(arguments.(string)))
		arguments = `{"input": ` + string(pyvalue.AppendJSONString(nil, arguments.(string), false)) + "}"
	case !ok:
		return refuse(Rejected)
	case !t.known(item, "type", "id", "call_id", "name", "arguments", "status") || !t.d.mergeItems && has(item, "id"):
		return refuse(UnknownShape) // 0.21 merges calls whose id starts with "mcp_"
	case space != "":
		name = flatName(space, name.(string))
	}
	call := dict("id", id, "function", dict("name", name, "arguments", arguments), "type", "function")
	if m := t.last(); m != nil {
		if v, _ := m.GetString("tool_calls"); v != nil {
			list := v.(*pyvalue.List)
			list.Items = append(list.Items, call)
			return nil
		}
	}
	t.give("tool_calls", pyvalue.NewList(call))
	return nil
}

func (t *items) output(item *pyvalue.Dict) error {
	id, _ := item.GetString("call_id") // null if it is absent
	if _, ok := id.(string); !ok && (id != nil || text(item, "type") == "custom_tool_call_output") {
		return refuse(Rejected)
	}
	output, _ := item.GetString("output")
	if list, isList := output.(*pyvalue.List); isList {
		if !texts(list, "input_text") {
			return refuse(UnknownShape)
		}
	} else if _, isText := output.(string); !isText {
		return refuse(Rejected)
	}
	t.push(dict("role", "tool", "content", output, "tool_call_id", id))
	return nil
}

func (t *items) reasoning(item *pyvalue.Dict) error {
	if v, _ := item.GetString("encrypted_content"); v != nil && v != "" || !t.known(item, "type", "id", "summary", "content", "status", "encrypted_content") {
		return refuse(UnknownShape)
	}
	s, _ := item.GetString("summary")
	summary, ok := s.(*pyvalue.List)
	if !ok || !texts(summary, "summary_text") {
		return refuse(Rejected)
	}
	text := ""
	v, _ := item.GetString("content")
	content, ok := v.(*pyvalue.List)
	switch {
	case v != nil && (!ok || !texts(content, "reasoning_text")):
		return refuse(Rejected)
	case v != nil && len(content.Items) > 0:
		text, _ = str(content.Items[0].(*pyvalue.Dict), "text")
	case len(summary.Items) > 0:
		text, _ = str(summary.Items[0].(*pyvalue.Dict), "text")
	}
	t.give("reasoning", text)
	return nil
}
