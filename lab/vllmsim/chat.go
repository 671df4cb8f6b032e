package vllmsim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"warmroute/render"
)

// prompt is one prompt as tokens.
type prompt struct {
	tokens []uint32
	images []image
}

// message is one turn of a conversation, of any route.
type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls []toolCall      `json:"tool_calls"`
}

// toolCall is one call of an assistant's message.
type toolCall struct {
	Function function `json:"function"`
}

// function is a tool, or a call of one.
type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Arguments   string          `json:"arguments"` // JSON
}

// tool is a function that may be called.
type tool struct {
	Function function `json:"function"`
}

// chatRequest has the common fields of /v1/chat/completions and /tokenize.
type chatRequest struct {
	Messages            []message `json:"messages"`
	Tools               []tool    `json:"tools"`
	AddGenerationPrompt *bool     `json:"add_generation_prompt"`
	ContinueFinal       bool      `json:"continue_final_message"`
	ReasoningEffort     string    `json:"reasoning_effort"`
	TemplateKwargs      struct {
		EnableThinking *bool `json:"enable_thinking"`
	} `json:"chat_template_kwargs"`
}

// thoughtless reports whether the assistant's turn opens with an empty thought.
func (r *chatRequest) thoughtless() bool {
	if think := r.TemplateKwargs.EnableThinking; think != nil {
		return !*think
	}
	return r.ReasoningEffort == "none"
}

// part is one piece of a message's content, in the dialects of all routes.
type part struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	ImageURL json.RawMessage `json:"image_url"`
	Source   json.RawMessage `json:"source"`
	raw      json.RawMessage
}

func (p *part) UnmarshalJSON(b []byte) error {
	type plain part
	if err := json.Unmarshal(b, (*plain)(p)); err != nil {
		return err
	}
	p.raw = append(json.RawMessage(nil), b...)
	return nil
}

// empty reports whether a part is an empty text, which vLLM leaves out.
func (p part) empty() bool {
	return p.Text == "" && (p.Type == "text" || p.Type == "input_text" || p.Type == "output_text")
}

// template renders conversations in the ChatML form of chatTemplate. Text is encoded when an
// image or the end makes it final, so that words never join across an image.
type template struct {
	p           prompt
	text        strings.Builder
	imageTokens int
}

func (t *template) flush() {
	t.p.tokens = encode(t.p.tokens, t.text.String())
	t.text.Reset()
}

func (t *template) image(data json.RawMessage) {
	t.flush()
	id := sha256.Sum256(data)
	t.p.images = append(t.p.images, image{hex.EncodeToString(id[:]), len(t.p.tokens), t.imageTokens})
	for range t.imageTokens {
		t.p.tokens = append(t.p.tokens, imageMarker)
	}
}

// content writes a message's content: a string, or the texts of parts with line breaks
// between them. Parts that are neither text nor image appear as their JSON.
func (t *template) content(raw json.RawMessage) error {
	if !given(raw) {
		return nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		t.text.WriteString(text)
		return nil
	}
	var parts []part
	if err := json.Unmarshal(raw, &parts); err != nil {
		return badRequest("a message's content must be a string or a list of parts")
	}
	first := true
	for _, p := range parts {
		if p.empty() {
			continue
		}
		if !first {
			t.text.WriteByte('\n')
		}
		first = false
		switch p.Type {
		case "text", "input_text", "output_text":
			t.text.WriteString(p.Text)
		case "image_url", "input_image":
			t.image(p.ImageURL)
		case "image":
			t.image(p.Source)
		default:
			t.text.Write(p.raw)
		}
	}
	return nil
}

// turn writes one message. open: the answer continues it.
func (t *template) turn(m message, open bool) error {
	t.text.WriteString("<|im_start|>" + m.Role + "\n")
	if err := t.content(m.Content); err != nil {
		return err
	}
	for _, c := range m.ToolCalls {
		t.text.WriteString("\n" + c.Function.Name + " ")
		arguments, err := render.AppendJSON(nil, []byte(c.Function.Arguments))
		if err != nil || arguments[0] != '{' {
			arguments = []byte("{}")
		}
		t.text.Write(arguments)
	}
	if !open {
		t.text.WriteString("<|im_end|>\n")
	}
	return nil
}

// tool writes one tool's declaration.
func (t *template) tool(f function) error {
	t.text.WriteString("\n" + f.Name + ": " + f.Description + " ")
	parameters := []byte("null")
	if given(f.Parameters) {
		var err error
		if parameters, err = render.AppendJSON(nil, f.Parameters); err != nil {
			return badRequest("a tool's parameters: %v", err)
		}
	}
	t.text.Write(parameters)
	return nil
}

// chatPrompt renders a conversation: tools after the system message's text,
// each turn, then the opening of the assistant's.
func (s *Sim) chatPrompt(req *chatRequest) (prompt, error) {
	if len(req.Messages) == 0 {
		return prompt{}, badRequest("messages must not be empty")
	}
	t := template{imageTokens: s.o.ImageTokens}
	msgs := req.Messages
	if len(req.Tools) > 0 {
		t.text.WriteString("<|im_start|>system\n")
		if msgs[0].Role == "system" {
			if err := t.content(msgs[0].Content); err != nil {
				return prompt{}, err
			}
			msgs = msgs[1:]
		}
		for _, tool := range req.Tools {
			if err := t.tool(tool.Function); err != nil {
				return prompt{}, err
			}
		}
		t.text.WriteString("<|im_end|>\n")
	}
	for i, m := range msgs {
		if m.Role == "" {
			return prompt{}, badRequest("a message has no role")
		}
		if err := t.turn(m, req.ContinueFinal && i == len(msgs)-1); err != nil {
			return prompt{}, err
		}
	}
	if req.AddGenerationPrompt == nil || *req.AddGenerationPrompt {
		t.text.WriteString("<|im_start|>assistant\n")
		if req.thoughtless() {
			t.text.WriteString("<think>\n\n</think>\n\n")
		}
	}
	t.flush()
	return t.p, nil
}
