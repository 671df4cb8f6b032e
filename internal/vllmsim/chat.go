package vllmsim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// prompt is one prompt as tokens.
type prompt struct {
	tokens []uint32
	images []image
}

// message is one turn of a conversation, whichever route it came by.
type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls"`
}

// chatRequest holds what /v1/chat/completions and /tokenize have in common.
type chatRequest struct {
	Messages            []message       `json:"messages"`
	Tools               json.RawMessage `json:"tools"`
	AddGenerationPrompt *bool           `json:"add_generation_prompt"`
	TemplateKwargs      struct {
		EnableThinking *bool `json:"enable_thinking"`
	} `json:"chat_template_kwargs"`
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

// template renders conversations in the ChatML form. Text is encoded when an
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

// content writes a message's content: a string, or parts whose texts are joined
// by line breaks. Parts that are neither text nor image appear as their JSON.
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
	for i, p := range parts {
		if i > 0 {
			t.text.WriteByte('\n')
		}
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

func (t *template) turn(m message) error {
	t.text.WriteString("<|im_start|>" + m.Role + "\n")
	if err := t.content(m.Content); err != nil {
		return err
	}
	t.json(m.ToolCalls)
	t.text.WriteString("<|im_end|>\n")
	return nil
}

func (t *template) json(raw json.RawMessage) {
	if given(raw) {
		t.text.WriteByte('\n')
		t.text.Write(raw)
	}
}

// chatPrompt renders a conversation: tools after the system message's text,
// each turn, then the opening of the assistant's.
func (s *Sim) chatPrompt(req *chatRequest) (prompt, error) {
	if len(req.Messages) == 0 {
		return prompt{}, badRequest("messages must not be empty")
	}
	t := template{imageTokens: s.o.ImageTokens}
	msgs := req.Messages
	if given(req.Tools) && string(req.Tools) != "[]" {
		t.text.WriteString("<|im_start|>system\n")
		if msgs[0].Role == "system" {
			if err := t.content(msgs[0].Content); err != nil {
				return prompt{}, err
			}
			msgs = msgs[1:]
		}
		t.json(req.Tools)
		t.text.WriteString("<|im_end|>\n")
	}
	for _, m := range msgs {
		if m.Role == "" {
			return prompt{}, badRequest("a message has no role")
		}
		if err := t.turn(m); err != nil {
			return prompt{}, err
		}
	}
	if req.AddGenerationPrompt == nil || *req.AddGenerationPrompt {
		t.text.WriteString("<|im_start|>assistant\n")
		if think := req.TemplateKwargs.EnableThinking; think != nil && !*think {
			t.text.WriteString("<think>\n\n</think>\n\n")
		}
	}
	t.flush()
	return t.p, nil
}
