package chat

import (
	"slices"
	"strings"
	"time"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/internal/tokenizer"
	"warmroute/render/openai"
)

// harmony writes the prompts of gpt-oss: vLLM's own system message, a developer
// message of instructions and tools, then the conversation in channels. vLLM encodes
// every piece of text by itself, without added tokens.
type harmony struct{ r *Renderer }

// newHarmony prepares r for a writer that reads messages as the client sent them. The
// effort that disables thinking is "none", to which harmony then objects; from 0.33 on it
// is "low".
func newHarmony(r *Renderer) coder {
	r.tellsDay = r.o.StartDate == ""
	r.sourceOnly, r.o.ContentFormat = true, FormatOpenAI
	r.mergeInline = mergeYes
	if r.disabledEffort = r.o.DisabledThinkingEffort; r.disabledEffort == "" {
		r.disabledEffort = either(r.from33(), "low", "none")
	}
	return harmony{r}
}

// The control tokens of harmony.
const (
	hStart     = "<|start|>"
	hChannel   = "<|channel|>"
	hMessage   = "<|message|>"
	hEnd       = "<|end|>"
	hCall      = "<|call|>"
	hSpecial   = "<|"
	hFunctions = "functions."
)

// hMsg is a message of harmony. Each of its contents is a piece by itself.
type hMsg struct {
	author   string // the role, or a tool's name
	channel  string
	call     string // recipient of an assistant's call
	result   bool   // a tool's result, to the assistant
	contents []string
}

func (h harmony) write(out *Rendered, req *request, now time.Time) error {
	if req.Route == openai.Completions {
		if err := common(req); err != nil {
			return err
		}
		if req.Raw(openai.FieldSuffix) != nil {
			return objection("suffix is not supported")
		}
		var err error
		out.AddSpecialTokens, err = completion(req)
		return err
	}
	if h.r.older() {
		return refuse(VersionDiffers)
	}
	p := &hPrompt{pieceWriter: pieceWriter{req.work, out, len(out.Text)}, o: &h.r.o, date: h.r.o.StartDate}
	if p.date == "" {
		p.date = now.Format(time.DateOnly)
	}
	var err error
	if req.Route == openai.Responses {
		err = p.responses(h.r, req)
	} else {
		err = p.chat(h.r, req)
	}
	if err == nil {
		p.finish()
	}
	return err
}

// hPrompt writes one prompt.
type hPrompt struct {
	pieceWriter
	o        *Options
	date     string
	tooled   bool
	messages []hMsg
}

// hEffort returns the system message's word for a reasoning effort.
func hEffort(effort string) (string, error) {
	switch effort {
	case "":
		return "medium", nil
	case "low", "medium", "high":
		return effort, nil
	case "none":
		return "", objection("Harmony does not support reasoning_effort='none'")
	}
	return "", objection("reasoning_effort is not supported by Harmony. Supported values are: high, medium, low.")
}

// preamble writes the system message and the developer message. instructions is nil if
// there are none.
func (p *hPrompt) preamble(instructions *string, tools *pyvalue.List, effort string) error {
	p.tooled = tools != nil && len(tools.Items) > 0
	level, err := hEffort(effort)
	if err != nil {
		return err
	}
	if p.o.SystemInstructions {
		p.add(p.system(instructions, level))
		instructions = nil
	} else {
		p.add(p.system(nil, level))
	}
	if !p.tooled && (instructions == nil || *instructions == "") {
		return nil
	}
	text := ""
	if p.tooled {
		if text, err = hTools(p.work, tools); err != nil {
			return err
		}
	}
	if instructions != nil {
		p.work.Make(2 * (len(text) + len(*instructions)))
		text = strings.TrimSuffix("# Instructions\n\n"+*instructions+"\n\n"+text, either(p.tooled, "", "\n\n"))
	}
	p.add(hMsg{author: "developer", contents: []string{text}})
	return nil
}

// system returns vLLM's system message.
func (p *hPrompt) system(instructions *string, effort string) hMsg {
	var b strings.Builder
	b.WriteString("You are ChatGPT, a large language model trained by OpenAI.")
	if instructions != nil {
		b.WriteString("\n" + *instructions)
	}
	b.WriteString("\nKnowledge cutoff: 2024-06\nCurrent date: " + p.date + "\n\nReasoning: " + effort)
	b.WriteString("\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.")
	if p.tooled {
		b.WriteString("\nCalls to these tools must go to the commentary channel: 'functions'.")
	}
	return hMsg{author: "system", contents: []string{b.String()}}
}

// instructed returns a later message of role system or developer.
func (p *hPrompt) instructed(role, text string) hMsg {
	switch {
	case !p.o.SystemInstructions:
		return hMsg{author: "developer", contents: []string{"# Instructions\n\n" + text}}
	case role == "system":
		return p.system(&text, "medium")
	}
	return hMsg{author: "developer"}
}

func (p *hPrompt) add(m hMsg) {
	p.work.Step(messageSteps)
	p.work.Memory(messageBytes)
	p.messages = append(p.messages, m)
}

// call adds an assistant's call of a function.
func (p *hPrompt) call(name, arguments string) error {
	if strings.Contains(name, hSpecial) {
		return refuse(UnknownShape) // vLLM refuses special tokens there
	}
	p.add(hMsg{author: "assistant", channel: "commentary", call: hFunctions + name, contents: []string{arguments}})
	return nil
}

// finish writes the messages, without the thoughts before the last answer.
func (p *hPrompt) finish() {
	final := -1
	for i, m := range p.messages {
		if m.author == "assistant" && m.channel == "final" {
			final = i
		}
	}
	p.work.Memory(128 * len(p.messages))
	p.out.Pieces = make([]tokenizer.Piece, 0, 8*len(p.messages)+2)
	for i, m := range p.messages {
		if i >= final || m.channel != "analysis" {
			p.message(m)
		}
	}
	p.token(hStart)
	p.text("assistant")
}

func (p *hPrompt) message(m hMsg) {
	p.token(hStart)
	switch {
	case m.call != "":
		p.text("assistant to=" + m.call)
		p.token(hChannel)
		p.text("commentary json")
	case m.result:
		p.text(m.author)
		p.token(hChannel)
		p.text("commentary")
		p.text(" to=assistant")
	case m.channel != "":
		p.text(m.author)
		p.token(hChannel)
		p.text(m.channel)
	default:
		p.text(m.author)
	}
	p.token(hMessage)
	for _, content := range m.contents {
		p.text(content)
	}
	if m.call != "" {
		p.token(hCall)
	} else {
		p.token(hEnd)
	}
}

// hFlat joins the texts of a content. ok is false if it has none.
func hFlat(content any, chat bool) (text string, ok bool, err error) {
	switch content := content.(type) {
	case nil:
		return "", false, nil
	case string:
		return content, true, nil
	case *pyvalue.List:
		texts, err := hTexts(content, chat)
		if err != nil {
			return "", false, err
		}
		ok = slices.ContainsFunc(content.Items, func(v any) bool { return has(v.(*pyvalue.Dict), "text") })
		return strings.Join(texts, ""), ok, nil
	}
	return "", false, refuse(Rejected)
}

// hTexts returns the texts of a content's parts; a part of another type has an empty text.
func hTexts(list *pyvalue.List, chat bool) ([]string, error) {
	texts := make([]string, len(list.Items))
	for i, item := range list.Items {
		part, ok := item.(*pyvalue.Dict)
		if !ok {
			return nil, refuse(UnknownShape)
		}
		if chat && !explicit(part) {
			return nil, refuse(UnknownShape) // vLLM reads such a content in some roles and not in others
		}
		switch text(part, "type") {
		case "input_text", "output_text":
			if chat {
				return nil, refuse(UnknownShape) // vLLM treats them by the role
			}
			fallthrough
		case "text":
			v, _ := part.GetString("text")
			if texts[i], ok = v.(string); !ok {
				return nil, refuse(Rejected)
			}
		case "image_url":
			url, _ := part.GetString("image_url")
			if d, ok := url.(*pyvalue.Dict); !ok || text(d, "url") == "" || !only(part, "type", "image_url") {
				return nil, refuse(UnknownShape)
			}
		case "tool_reference":
			if name, _ := part.GetString("name"); name != nil && text(part, "name") == "" || !only(part, "type", "name") {
				return nil, refuse(UnknownShape)
			}
		case "refusal", "thinking":
			if kind := text(part, "type"); !only(part, "type", kind) || !has(part, kind) {
				return nil, refuse(UnknownShape)
			}
		default:
			return nil, refuse(UnknownShape)
		}
	}
	return texts, nil
}
