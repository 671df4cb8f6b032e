package chat

import (
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/internal/tokenizer"
)

// mistralWriter writes a prompt: pieces of text, and the names of control tokens between
// them.
type mistralWriter struct {
	pieceWriter
	version int
}

func (w *mistralWriter) request(r *mistralRequest) error {
	first, last := -1, -1
	for i, m := range r.messages {
		if m.role == "user" {
			if last = i; first < 0 {
				first = i
			}
		}
	}
	if w.version == 2 {
		if err := oneResult(r.messages, last); err != nil {
			return err
		}
	}
	w.out.Pieces = make([]tokenizer.Piece, 0, 4*len(r.messages)+8)
	w.token("<s>")
	for i, m := range r.messages {
		var err error
		switch m.role {
		case "user":
			w.user(r, m, i == first, i == last)
		case "tool":
			err = w.tool(m, i < last)
		case "assistant":
			err = w.assistant(m, i < last)
		case "system":
			w.token("[SYSTEM_PROMPT]")
			if err = w.content(m.content); err == nil {
				w.token("[/SYSTEM_PROMPT]")
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// oneResult refuses several results of one turn, which version 2 cannot print.
func oneResult(messages []mistralMessage, last int) error {
	calls, results := false, 0
	for _, m := range messages[max(last, 0):] {
		switch m.role {
		case "tool":
			if results++; calls && results > 1 {
				return objection("tokenizer v2 does not support multiple tool results for one assistant turn")
			}
		default:
			calls, results = m.role == "assistant" && len(m.calls) > 0, 0
		}
	}
	return nil
}

func (w *mistralWriter) user(r *mistralRequest, m mistralMessage, first, last bool) {
	text := m.content.text
	if r.system != "" && (w.version == 1 && first || w.version > 1 && w.version < 7 && last) {
		text = r.system + "\n\n" + text
	}
	if w.version == 1 {
		w.text("[INST] " + text + " [/INST]")
		return
	}
	if at := first && w.version >= 13 || last && w.version < 13; at {
		if r.tools != "" {
			w.token("[AVAILABLE_TOOLS]")
			w.text(r.tools)
			w.token("[/AVAILABLE_TOOLS]")
		}
		if r.settings != "" {
			w.token("[MODEL_SETTINGS]")
			w.text(r.settings)
			w.token("[/MODEL_SETTINGS]")
		}
	}
	w.token("[INST]")
	w.text(text)
	w.token("[/INST]")
}

// content writes a text, or chunk by chunk.
func (w *mistralWriter) content(c mistralContent) error {
	if !c.list {
		w.text(c.text)
		return nil
	}
	for _, chunk := range c.chunks {
		if !chunk.thought {
			w.text(chunk.text)
			continue
		}
		if w.version < 13 {
			return objection("think is not implemented for this tokenizer")
		}
		w.token("[THINK]")
		w.text(chunk.text)
		if chunk.ended {
			w.token("[/THINK]")
		}
	}
	return nil
}

func (w *mistralWriter) tool(m mistralMessage, past bool) error {
	switch w.version {
	case 1:
		return objection("tools are not implemented for this tokenizer")
	case 2:
		if past {
			return nil
		}
		name := "null"
		if m.named {
			name = quoteJSON(m.name)
		}
		w.token("[TOOL_RESULTS]")
		w.text(`[{"name": ` + name + `, "content": ` + m.content.text + `}]`)
	case 3:
		w.token("[TOOL_RESULTS]")
		w.text(`{"content": ` + m.content.text + `, "call_id": ` + quoteJSON(m.id) + `}`)
	case 7, 11:
		w.token("[TOOL_RESULTS]")
		w.text(m.id)
		w.token("[TOOL_CONTENT]")
		w.text(m.content.text)
	default:
		w.token("[TOOL_RESULTS]")
		w.text(m.content.text)
	}
	w.token("[/TOOL_RESULTS]")
	return nil
}

func (w *mistralWriter) assistant(m mistralMessage, past bool) error {
	if m.content.empty() && len(m.calls) == 0 {
		return objection("the assistant message has neither content nor tool calls")
	}
	switch {
	case w.version == 1 && len(m.calls) > 0:
		return objection("tools are not implemented for this tokenizer")
	case w.version == 1:
		w.text(m.content.text)
	case w.version < 7 && len(m.calls) > 0 && !m.content.empty():
		return objection("an assistant message has content and tool calls")
	case w.version == 2 && len(m.calls) > 0 && past:
		return nil
	case m.content.list:
		if err := w.content(m.content); err != nil {
			return err
		}
	default:
		w.text(strings.TrimRight(m.content.text, " "))
	}
	w.calls(m.calls)
	if !m.prefix {
		w.token("</s>")
	}
	return nil
}

// calls writes tool calls: as a list in JSON, or from version 11 on each by itself.
func (w *mistralWriter) calls(calls []mistralCall) {
	if len(calls) == 0 {
		return
	}
	if w.version < 11 {
		var b strings.Builder
		for i, call := range calls {
			b.WriteString([]string{"[", ", "}[min(i, 1)])
			b.WriteString(`{"name": ` + quoteJSON(call.name) + `, "arguments": ` + call.arguments)
			if w.version > 2 && call.id != "" && call.id != nullID {
				b.WriteString(`, "id": ` + quoteJSON(call.id))
			}
			b.WriteByte('}')
		}
		w.token("[TOOL_CALLS]")
		w.text(b.String() + "]")
		return
	}
	for _, call := range calls {
		w.token("[TOOL_CALLS]")
		w.text(call.name)
		if w.version < 13 && call.id != "" && call.id != nullID {
			w.token("[CALL_ID]")
			w.text(call.id)
		}
		w.token("[ARGS]")
		w.text(call.arguments)
	}
}

// nullID is the id of a call that has none.
const nullID = "null"

func quoteJSON(text string) string { return string(pyvalue.AppendJSONString(nil, text, false)) }
