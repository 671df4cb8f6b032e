package chat

import (
	"slices"
	"time"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/internal/tokenizer"
	"warmroute/render/openai"
)

// mistral writes prompts as mistral-common 1.13 does behind vLLM 0.32: each text is a
// piece by itself, with control tokens between the texts.
type mistral struct {
	r *Renderer
	m tokenizer.Mistral
}

func newMistral(r *Renderer) coder {
	m := r.o.Model.Mistral
	if m.Version == 0 {
		return nil
	}
	// Without a template vLLM moves system messages inside /v1/messages to the front.
	// The effort of "disabled" thinking is in prompts from version 15 on.
	r.o.ContentFormat, r.keepRaw, r.mergeInline = FormatString, true, mergeYes
	r.disabledEffort = r.o.DisabledThinkingEffort
	if r.disabledEffort == "" && (m.Version < 15 || m.Efforts == nil || slices.Contains(m.Efforts, "none")) {
		r.disabledEffort = "none"
	}
	if r.disabledEffort == "" && r.from33() {
		r.disabledEffort = "low"
	}
	return &mistral{r, m}
}

// write implements coder.
func (c *mistral) write(out *Rendered, req *request, _ time.Time) error {
	if err := common(req); err != nil {
		return c.media(err)
	}
	if req.Route == openai.Completions {
		special, err := completion(req)
		out.AddSpecialTokens = special
		return err
	}
	if c.r.older() {
		return refuse(VersionDiffers)
	}
	p, err := c.prompt(req)
	if err != nil {
		return c.media(err)
	}
	request, err := c.request(p)
	if err != nil {
		return err
	}
	out.Features |= p.features
	out.Setting = c.r.setting(req, p)
	out.Truncates = req.Route == openai.Responses && string(req.Raw(openai.FieldTruncation)) == `"auto"`
	w := mistralWriter{pieceWriter{req.work, out, len(out.Text)}, c.m.Version}
	return w.request(request)
}

// media replaces the refusal of media by vLLM's objection to them if the model reads text
// alone.
func (c *mistral) media(err error) error {
	if not, ok := err.(*NotInProcess); ok && not.Why == Multimodal && !c.r.o.Model.Vision { //nolint:errorlint // made by refuse
		return objection("the model is not a multimodal model")
	}
	return err
}

// prompt reads a request as vLLM does, and keeps its messages as the client sent them.
func (c *mistral) prompt(req *request) (*prompt, error) {
	p, err := c.r.build(req, dialect32)
	if err != nil {
		return nil, err
	}
	p.read()
	if req.Route != openai.Responses {
		if req.Raw(openai.FieldChatTemplateKwargs) != nil {
			return nil, objection("chat_template is not supported for Mistral tokenizers")
		}
		if p.asked != "" && !IsEffort(p.asked) {
			return nil, objection("the reasoning effort is not supported by Mistral models")
		}
		cutIDs(p.raw)
	}
	return p, c.kwargs(p)
}

// kwargs reads the reasoning effort, from the request or else from chat_template_kwargs:
// mistral-common gets no other keyword argument.
func (c *mistral) kwargs(p *prompt) error {
	effort := p.effort
	for _, kwargs := range []*pyvalue.Dict{p.kwargs, c.r.o.DefaultKwargs} {
		if kwargs == nil {
			continue
		}
		for k, v := range kwargs.All() {
			name, _ := k.(string)
			if slices.Contains(reserved, name) || name == "add_generation_prompt" || name == "continue_final_message" {
				return refuse(ReservedKwargs)
			}
			if name != "reasoning_effort" || v == nil || v == "auto" || effort != "" {
				continue
			}
			text, ok := v.(string)
			if !ok {
				return refuse(UnknownShape)
			}
			effort = text
		}
		if kwargs == p.kwargs && kwargs.Len() > 0 {
			p.features |= openai.FeatureKwargs
		}
	}
	if p.effort = effort; effort != "" {
		p.features |= openai.FeatureReasoning
	}
	return nil
}

// idLength is the number of characters of a tool call's id that vLLM passes to
// mistral-common.
const idLength = 9

// cutIDs cuts long ids of calls and results to their ends.
func cutIDs(messages []*pyvalue.Dict) {
	cut := func(d *pyvalue.Dict, key string) {
		if id, ok := d.GetString(key); ok {
			text, _ := id.(string)
			if runes := []rune(text); len(runes) > idLength {
				d.Set(key, string(runes[len(runes)-idLength:]))
			}
		}
	}
	for _, m := range messages {
		switch role, _ := m.GetString("role"); role {
		case "assistant":
			if calls, _ := m.GetString("tool_calls"); calls != nil {
				for _, call := range calls.(*pyvalue.List).Items {
					cut(call.(*pyvalue.Dict), "id")
				}
			}
		case "tool":
			cut(m, "tool_call_id")
		}
	}
}

// read changes the raw messages as vLLM does before mistral-common gets them: calls have
// their arguments as mappings, and reasoning is set.
func (p *prompt) read() {
	for i, m := range p.raw {
		if bare(m) {
			continue
		}
		normal := p.messages.Items[i].(*pyvalue.Dict)
		for _, key := range []string{"tool_calls", "reasoning"} {
			m.Delete(key)
			if v, ok := normal.GetString(key); ok {
				m.Set(key, v)
			}
		}
	}
}
