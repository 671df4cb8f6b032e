package chat

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"warmroute/render/internal/jinja"
	"warmroute/render/internal/pyvalue"
	"warmroute/render/openai"
)

// IsSGLang reports whether a server's version is SGLang's: "sglang 0.5.23".
func IsSGLang(version string) bool { return strings.HasPrefix(version, "sglang ") }

// dialectSGLang has the rules of SGLang (serving_chat.py of 0.5.23), where they differ from
// vLLM's: Renderer.sglang builds its prompts.
var dialectSGLang = dialect{sglang: true}

// mediaWords in a template make SGLang give it contents as lists.
var mediaWords = []string{"image", "audio", "video", "vision"}

// partsLoop matches a loop over a message's content that SGLang certainly recognises.
var partsLoop = regexp.MustCompile(`\{%-?\s*for\s+\w+\s+in\s+(message|msg|m)(\.content|\['content'\]|\["content"\])\s*-?%\}`)

// sglang builds the prompt of /v1/chat/completions as SGLang's chat server does: from messages
// with their known fields and without null ones, a last message of the assistant as one of the
// user, and tools in the client's order of fields. It refuses what SGLang writes in code or
// encodes in parts, and what depends on more than the request and the template.
func (r *Renderer) sglang(req *request) (*prompt, error) {
	switch {
	case req.Route != openai.Chat, req.Raw(openai.FieldReasoning) != nil, req.Raw(openai.FieldInputIDs) != nil:
		return nil, refuse(UnknownShape)
	case req.Raw(openai.FieldChatTemplate) != nil:
		return nil, refuse(RequestTemplate)
	}
	p := &prompt{generation: true, defaults: true}
	r.begin(req.work, p, dialectSGLang, true)
	continues, err := boolField(req, openai.FieldContinueFinalMessage, false)
	if err != nil {
		return nil, err
	}
	if continues { // the last message is encoded by itself
		p.features |= openai.FeatureContinue
		return nil, refuse(UnknownShape)
	}
	if p.kwargs, err = dictField(req, openai.FieldChatTemplateKwargs); err != nil {
		return nil, err
	}
	if p.effort, err = textField(req, openai.FieldReasoningEffort); err != nil {
		return nil, refuse(UnknownShape) // it may be a number
	}
	if err := p.sglangKwargs(); err != nil {
		return nil, err
	}
	if err := p.sglangTools(req); err != nil {
		return nil, err
	}
	t := r.template(p.tools != nil)
	switch {
	case t == nil:
		return nil, refuse(NoTemplate)
	case t.variables["thinking_mode"] && (p.effort != "" || req.Raw(openai.FieldThinking) != nil):
		return nil, refuse(UnknownShape) // MiniMax-M3, for which SGLang rewrites both
	}
	list, err := listField(req, openai.FieldMessages)
	if err != nil || list == nil || len(list.Items) == 0 {
		return nil, refuse(Rejected)
	}
	for _, item := range list.Items {
		m, ok := item.(*pyvalue.Dict)
		if !ok {
			return nil, refuse(Rejected)
		}
		out, err := p.sglangMessage(m, t)
		if err != nil {
			return nil, err
		}
		p.messages.Items = append(p.messages.Items, out)
	}
	p.lastIsUsers()
	if strings.Contains(t.source, "tool_call_id") {
		return p, p.inOrder()
	}
	return p, nil
}

// lastIsUsers makes a last message of the assistant one of the user, unless it has parts.
func (p *prompt) lastIsUsers() {
	last := &p.messages.Items[len(p.messages.Items)-1]
	content, _ := (*last).(*pyvalue.Dict).GetString("content")
	role, _ := (*last).(*pyvalue.Dict).GetString("role")
	if _, isText := content.(string); isText && role == "assistant" {
		*last = dict("role", "user", "content", content)
	}
}

// sglangKwargs adds what SGLang makes of an effort to the kwargs. It refuses kwargs that
// SGLang reads itself, or hands on where vLLM does not.
func (p *prompt) sglangKwargs() error {
	if p.effort != "" {
		with := dict("thinking", p.effort != "none", "enable_thinking", p.effort != "none")
		if p.kwargs != nil {
			for k, v := range p.kwargs.All() {
				with.Set(k, v)
			}
		}
		p.kwargs = with
	}
	if p.kwargs == nil {
		return nil
	}
	for k, v := range p.kwargs.All() {
		name, _ := k.(string)
		if v == nil || v == "auto" || name == "reasoning_effort" || name == "add_generation_prompt" || slices.Contains(globals, name) {
			return refuse(UnknownShape)
		}
	}
	return nil
}

// sglangTools sets the tools that SGLang shows the template: none, all, or the chosen one.
func (p *prompt) sglangTools(req *request) error {
	list, err := listField(req, openai.FieldTools)
	if err != nil || list == nil {
		return err
	}
	choice, err := parseField(req, openai.FieldToolChoice)
	if err != nil || choice == "none" {
		return err
	}
	only := ""
	if chosen, ok := choice.(*pyvalue.Dict); ok {
		f, _ := chosen.GetString("function")
		if function, ok := f.(*pyvalue.Dict); ok {
			only, _ = str(function, "name")
		}
	} else if choice != nil && choice != "auto" && choice != "required" {
		return refuse(Rejected)
	}
	tools := pyvalue.NewList()
	for _, item := range list.Items {
		tool, ok := item.(*pyvalue.Dict)
		if !ok {
			return refuse(Rejected)
		}
		dump, name, err := p.sglangTool(tool)
		if err != nil {
			return err
		}
		if only == "" || name == only {
			tools.Items = append(tools.Items, dump)
		}
	}
	if len(tools.Items) > 0 {
		p.tools = tools
	}
	return nil
}

// sglangTool dumps a Tool: the function's known fields in the client's order, then null for
// those that it lacks.
func (p *prompt) sglangTool(tool *pyvalue.Dict) (dump *pyvalue.Dict, name string, err error) {
	p.work.Step(2 * messageSteps)
	p.work.Memory(3 * messageBytes)
	f, _ := tool.GetString("function")
	function, ok := f.(*pyvalue.Dict)
	if !ok {
		return nil, "", refuse(Rejected)
	}
	if name, ok = str(function, "name"); !ok || name == "" {
		return nil, "", refuse(Rejected)
	}
	if kind, ok := tool.GetString("type"); ok && kind != "function" || has(tool, "defer_loading") || has(function, "defer_loading") {
		return nil, "", refuse(UnknownShape)
	}
	fields := pyvalue.NewDict()
	for k, v := range function.All() {
		switch k {
		case "name", "description", "parameters":
			fields.Set(k, v)
		case "strict":
			if v != nil {
				fields.Set(k, v)
			}
		}
	}
	for _, key := range []string{"description", "parameters"} {
		if _, ok := fields.GetString(key); !ok {
			fields.Set(key, nil)
		}
	}
	if v, _ := fields.GetString("parameters"); v != nil {
		if _, ok := v.(*pyvalue.Dict); !ok {
			return nil, "", refuse(UnknownShape)
		}
	}
	return dict("type", "function", "function", fields, "defer_loading", nil), name, nil
}

// sglangMessage returns a message as the template reads it.
func (p *prompt) sglangMessage(m *pyvalue.Dict, t *template) (*pyvalue.Dict, error) {
	p.work.Step(messageSteps)
	p.work.Memory(messageBytes)
	role, _ := str(m, "role")
	if !slices.Contains([]string{"system", "user", "assistant", "tool"}, role) || has(m, "tools") || has(m, "prefix") || has(m, "phase") {
		return nil, refuse(UnknownShape)
	}
	content, isList, err := p.sglangContent(m, role, t)
	if err != nil {
		return nil, err
	}
	out := dict("role", role)
	if !isList {
		out.Set("content", content)
	}
	if role != "user" { // whose class has no other fields
		for _, key := range []string{"tool_call_id", "name", "reasoning_content"} {
			v, _ := m.GetString(key)
			if v == nil {
				continue
			}
			if _, isText := v.(string); !isText {
				return nil, refuse(Rejected)
			}
			out.Set(key, v)
			if key == "reasoning_content" {
				p.features |= openai.FeatureReasoning
				p.reasoning = true
			}
		}
		if err := p.sglangCalls(out, m, role); err != nil {
			return nil, err
		}
	}
	if isList {
		out.Set("content", content)
	}
	return out, nil
}

// sglangContent returns a message's content, and whether it is a list.
func (p *prompt) sglangContent(m *pyvalue.Dict, role string, t *template) (content any, isList bool, err error) {
	v, _ := m.GetString("content")
	switch v := v.(type) {
	case string:
		return v, false, nil
	case nil:
		if role == "user" {
			return nil, false, refuse(Rejected)
		}
		return "", false, nil
	case *pyvalue.List:
		p.features |= openai.FeatureParts
		parts, texts := pyvalue.NewList(), make([]string, 0, len(v.Items))
		for _, item := range v.Items {
			p.work.Step(fieldSteps)
			p.work.Memory(3 * fieldBytes)
			part, ok := item.(*pyvalue.Dict)
			if !ok {
				return nil, false, refuse(Rejected)
			}
			kind, _ := part.GetString("type")
			text, isText := str(part, "text")
			if kind != "text" || !isText {
				return nil, false, refuse(UnknownShape)
			}
			parts.Items = append(parts.Items, dict("type", "text", "text", text))
			texts = append(texts, text)
		}
		lists := partsLoop.MatchString(t.source) ||
			slices.ContainsFunc(mediaWords, func(word string) bool { return strings.Contains(t.source, word) })
		if !lists && (t.loops[jinja.Detection32] || t.loops[jinja.Detection21]) {
			return nil, false, refuse(UnknownShape) // SGLang recognises fewer loops than vLLM
		}
		if lists && role != "tool" {
			return parts, true, nil
		}
		return join(p.work, texts, " "), lists, nil
	}
	return nil, false, refuse(Rejected)
}

// sglangCalls sets the tool calls of a message, dumped by their classes, with arguments read
// as JSON.
func (p *prompt) sglangCalls(out, m *pyvalue.Dict, role string) error {
	v, _ := m.GetString("tool_calls")
	if v == nil {
		return nil
	}
	list, ok := v.(*pyvalue.List)
	if !ok || role != "assistant" {
		return refuse(UnknownShape)
	}
	p.features |= openai.FeatureToolCalls
	calls := pyvalue.NewList()
	for _, item := range list.Items {
		p.work.Step(messageSteps)
		p.work.Memory(messageBytes)
		call, ok := item.(*pyvalue.Dict)
		if !ok {
			return refuse(Rejected)
		}
		f, _ := call.GetString("function")
		function, ok := f.(*pyvalue.Dict)
		if !ok || has(call, "index") {
			return refuse(UnknownShape)
		}
		id, _ := str(call, "id")
		name, _ := str(function, "name")
		text, _ := str(function, "arguments")
		if id == "" || name == "" {
			return refuse(UnknownShape)
		}
		arguments, err := p.sglangArguments(text)
		if err != nil {
			return err
		}
		calls.Items = append(calls.Items, dict("id", id, "index", nil, "type", "function", "function", dict("name", name, "arguments", arguments)))
	}
	out.Set("tool_calls", calls)
	return nil
}

// sglangArguments reads arguments as orjson does, which takes integers of 64 bits alone.
func (p *prompt) sglangArguments(text string) (any, error) {
	p.work.Make(len(text))
	v, err := pyvalue.ParseLast(p.work, []byte(text))
	d, ok := v.(*pyvalue.Dict)
	if err != nil || !ok || longNumber([]byte(text)) {
		return nil, refuse(UnknownShape)
	}
	return d, nil
}

// longNumber reports whether a text has 19 digits in a row, or a name that is no JSON number.
func longNumber(text []byte) bool {
	digits := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			digits = 0
			continue
		}
		if digits++; digits == 19 {
			return true
		}
	}
	return bytes.Contains(text, []byte("NaN")) || bytes.Contains(text, []byte("Infinity"))
}

// inOrder refuses results of tools in another order than their calls, which SGLang sorts for
// some templates.
func (p *prompt) inOrder() error {
	var calls *pyvalue.List
	next := 0
	for _, item := range p.messages.Items {
		p.work.Step(fieldSteps)
		m := item.(*pyvalue.Dict)
		if role, _ := m.GetString("role"); role != "tool" {
			v, _ := m.GetString("tool_calls")
			calls, _ = v.(*pyvalue.List)
			next = 0
			continue
		}
		id, _ := m.GetString("tool_call_id")
		if calls == nil || next >= len(calls.Items) {
			return refuse(UnknownShape)
		}
		if call, _ := calls.Items[next].(*pyvalue.Dict).GetString("id"); call != id {
			return refuse(UnknownShape)
		}
		next++
	}
	return nil
}
