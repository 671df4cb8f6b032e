package vllmsim

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// responsesTool and messagesTool are a tool in the other routes' forms.
type responsesTool struct{ function }

func (t responsesTool) tool() tool { return tool{t.function} }

type messagesTool struct {
	function
	Schema json.RawMessage `json:"input_schema"`
}

// tool writes the schema's type where it is missing.
func (t messagesTool) tool() tool {
	out := tool{t.function}
	out.Function.Parameters = t.Schema
	var schema map[string]json.RawMessage
	if json.Unmarshal(t.Schema, &schema) == nil && schema["type"] == nil {
		more := `,"type":"object"}`
		if len(schema) == 0 {
			more = strings.TrimPrefix(more, ",")
		}
		out.Function.Parameters = slices.Concat(bytes.TrimSuffix(bytes.TrimRight(t.Schema, " \n\t\r"), []byte("}")), []byte(more))
	}
	return out
}

func convert[T any](list []T, f func(T) tool) []tool {
	out := make([]tool, len(list))
	for i, t := range list {
		out[i] = f(t)
	}
	return out
}

// input reads /v1/responses' input: a text, or items. The items of one assistant's turn
// become one message.
func (r *chatRequest) input(raw json.RawMessage) error {
	var text string
	if given(raw) && json.Unmarshal(raw, &text) == nil {
		r.Messages = append(r.Messages, message{Role: "user", Content: raw})
		return nil
	}
	var items []struct {
		message
		Type      string          `json:"type"`
		Name      string          `json:"name"`
		Arguments string          `json:"arguments"`
		Output    json.RawMessage `json:"output"`
	}
	if json.Unmarshal(raw, &items) != nil || len(items) == 0 {
		return badRequest("input must be a string or a list of items")
	}
	for _, i := range items {
		switch {
		case i.Type == "function_call":
			m := r.assistant()
			m.ToolCalls = append(m.ToolCalls, toolCall{function{Name: i.Name, Arguments: i.Arguments}})
		case i.Type == "function_call_output":
			r.Messages = append(r.Messages, message{Role: "tool", Content: i.Output})
		case i.Type == "reasoning": // begins the turn without text
			r.assistant()
		case i.Role == "assistant":
			m := r.assistant()
			if given(m.Content) {
				r.Messages = append(r.Messages, message{Role: "assistant"})
				m = r.assistant()
			}
			m.Content = i.Content
		default:
			r.Messages = append(r.Messages, i.message)
		}
	}
	return nil
}

// assistant returns the last message if it is the assistant's, else a new message.
func (r *chatRequest) assistant() *message {
	if n := len(r.Messages); n == 0 || r.Messages[n-1].Role != "assistant" {
		r.Messages = append(r.Messages, message{Role: "assistant"})
	}
	return &r.Messages[len(r.Messages)-1]
}

// system reads /v1/messages' system prompt: a text, or blocks whose texts follow
// each other.
func (r *chatRequest) system(raw json.RawMessage) error {
	var text string
	var parts []part
	switch {
	case !given(raw):
		return nil
	case json.Unmarshal(raw, &text) == nil:
	case json.Unmarshal(raw, &parts) == nil:
		var all strings.Builder
		for _, p := range parts {
			all.WriteString(p.Text)
		}
		text = all.String()
	default:
		return badRequest("system must be a string or a list of blocks")
	}
	if text != "" {
		r.Messages = append(r.Messages, message{Role: "system", Content: quote(text)})
	}
	return nil
}

// blocks adds a message of /v1/messages: results of tools become messages of their own
// before it, and thoughts have no text.
func (r *chatRequest) blocks(m message) error {
	if !bytes.HasPrefix(m.Content, []byte("[")) {
		r.Messages = append(r.Messages, m)
		return nil
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(m.Content, &raw); err != nil {
		return badRequest("content: %v", err)
	}
	var parts []json.RawMessage
	for _, b := range raw {
		var block struct {
			Type, Text, Name string
			Input, Content   json.RawMessage
		}
		if err := json.Unmarshal(b, &block); err != nil {
			return badRequest("content: %v", err)
		}
		switch {
		case block.Type == "tool_use":
			m.ToolCalls = append(m.ToolCalls, toolCall{function{Name: block.Name, Arguments: string(block.Input)}})
		case block.Type == "tool_result":
			r.Messages = append(r.Messages, message{Role: "tool", Content: block.Content})
		case block.Type == "thinking", block.Type == "redacted_thinking", block.Type == "text" && block.Text == "":
		default:
			parts = append(parts, b)
		}
	}
	if len(parts) == 0 && m.Role == "user" {
		return nil
	}
	var err error
	if m.Content, err = json.Marshal(parts); err != nil {
		return badRequest("content: %v", err)
	}
	r.Messages = append(r.Messages, m)
	return nil
}
