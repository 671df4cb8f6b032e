package chat

import (
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// mistralContent is a message's content: a text, or chunks of text and thought.
type mistralContent struct {
	text   string
	list   bool // chunks count
	chunks []mistralChunk
}

type mistralChunk struct {
	text           string
	thought, ended bool // thought; and its end is written, too
}

// empty reports whether the content is false in Python.
func (c mistralContent) empty() bool {
	if c.list {
		return len(c.chunks) == 0
	}
	return c.text == ""
}

func (c mistralContent) thinks() bool {
	for _, chunk := range c.chunks {
		if chunk.thought {
			return true
		}
	}
	return false
}

type mistralCall struct{ id, name, arguments string }

type mistralMessage struct {
	role    string
	content mistralContent
	calls   []mistralCall
	prefix  bool // the answer continues it
	// id and name belong to a tool's result.
	id, name string
	named    bool
}

// mistralRequest is a conversation ready to be written.
type mistralRequest struct {
	work     *work.Budget
	messages []mistralMessage
	system   string // for versions up to 3
	hasSys   bool
	tools    string // as JSON, "" if there are none
	settings string // as JSON
}

// mistralMessages reads the client's messages as mistral-common's from_openai does.
func mistralMessages(w *work.Budget, list []*pyvalue.Dict) ([]mistralMessage, error) {
	messages := make([]mistralMessage, 0, len(list))
	for _, d := range list {
		w.Step(2 * messageSteps)
		w.Memory(2 * messageBytes)
		m, err := newMistralMessage(w, d)
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

func newMistralMessage(w *work.Budget, d *pyvalue.Dict) (mistralMessage, error) {
	var m mistralMessage
	m.role, _ = str(d, "role")
	content, present := d.GetString("content")
	switch m.role {
	case "developer":
		m.role = "system"
	case "system", "user", "tool", "assistant":
	default:
		return m, objection("unknown message role")
	}
	if m.role != "assistant" && (!present || content == nil) {
		return m, objection("the message has no content")
	}
	var err error
	if m.content, err = newMistralContent(content); err != nil {
		return m, err
	}
	switch m.role {
	case "assistant":
		return m, m.assistant(w, d, content == nil)
	case "tool":
		return m, m.tool(d)
	}
	if m.role == "user" && m.content.thinks() {
		return m, objection("a thinking chunk cannot be used in a user message")
	}
	return m, nil
}

func newMistralContent(v any) (mistralContent, error) {
	switch v := v.(type) {
	case nil:
		return mistralContent{}, nil
	case string:
		return mistralContent{text: v}, nil
	case *pyvalue.List:
		c := mistralContent{list: true}
		for _, item := range v.Items {
			part, ok := item.(*pyvalue.Dict)
			if !ok {
				return c, objection("a content part is a text, not an object")
			}
			switch kind, _ := part.GetString("type"); kind {
			case "text":
				text, _ := str(part, "text")
				c.chunks = append(c.chunks, mistralChunk{text: text})
			case "thinking":
				text, _ := str(part, "thinking")
				closed, ok := part.GetString("closed")
				c.chunks = append(c.chunks, mistralChunk{text, true, !ok || closed == true})
			default:
				return c, objection("the content part's type is not valid")
			}
		}
		return c, nil
	}
	return mistralContent{}, refuse(UnknownShape)
}

// assistant reads the calls and the reasoning of an assistant's message.
func (m *mistralMessage) assistant(w *work.Budget, d *pyvalue.Dict, none bool) error {
	if v, _ := d.GetString("tool_calls"); v != nil {
		for _, item := range v.(*pyvalue.List).Items {
			call := item.(*pyvalue.Dict)
			f, _ := call.GetString("function")
			function := f.(*pyvalue.Dict)
			id, _ := str(call, "id")
			name, _ := str(function, "name")
			arguments, _ := function.GetString("arguments")
			text, err := dumpUnicode(w, arguments)
			if err != nil {
				return err
			}
			m.calls = append(m.calls, mistralCall{id, name, text})
		}
	}
	v, _ := d.GetString("reasoning")
	if v == nil {
		return nil
	}
	if m.content.thinks() {
		return objection("the message has thinking chunks in its content and reasoning beside it")
	}
	chunks := []mistralChunk{{v.(string), true, true}}
	if !m.content.list && !none {
		chunks = append(chunks, mistralChunk{text: m.content.text})
	}
	m.content = mistralContent{list: true, chunks: append(chunks, m.content.chunks...)}
	return nil
}

func (m *mistralMessage) tool(d *pyvalue.Dict) error {
	id, ok := d.GetString("tool_call_id")
	if !ok {
		return objection("the tool message has no tool_call_id")
	}
	if m.id, ok = id.(string); !ok {
		return refuse(UnknownShape)
	}
	if m.content.thinks() {
		return objection("a thinking chunk cannot be used in a tool message")
	}
	name, _ := d.GetString("name")
	m.name, m.named = name.(string)
	return nil
}

// dumpUnicode is json.dumps(v, ensure_ascii=False).
func dumpUnicode(w *work.Budget, v any) (string, error) {
	o := pyvalue.DefaultDumps()
	o.EnsureASCII, o.Work = false, w
	text, err := pyvalue.AppendDumps(nil, v, o)
	if err != nil {
		return "", refuse(UnknownShape)
	}
	return string(text), nil
}

// joinContents merges the contents of messages of one role: texts without a thought
// between them become one text.
func joinContents(messages []mistralMessage, between, within string) mistralContent {
	if len(messages) == 1 && !messages[0].content.list {
		return messages[0].content
	}
	var chunks []mistralChunk
	var text strings.Builder
	started := false // text has a part, which may be empty
	flush := func() {
		if started {
			chunks = append(chunks, mistralChunk{text: text.String()})
			text.Reset()
			started = false
		}
	}
	for _, m := range messages {
		fresh := started // the next text belongs to another message
		if m.content.empty() {
			continue
		}
		parts := m.content.chunks
		if !m.content.list {
			parts = []mistralChunk{{text: m.content.text}}
		}
		for _, part := range parts {
			switch {
			case part.thought:
				flush()
				chunks = append(chunks, part)
				continue
			case part.text == "":
				continue
			case !started:
			case fresh:
				text.WriteString(between)
			default:
				text.WriteString(within)
			}
			text.WriteString(part.text)
			started, fresh = true, false
		}
	}
	if len(chunks) == 0 {
		return mistralContent{text: text.String()}
	}
	flush()
	return mistralContent{list: true, chunks: chunks}
}
