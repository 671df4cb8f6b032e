package chat

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"warmroute/render/openai"
	"warmroute/render/testkit/race"
	"warmroute/render/work"
)

// Templates that loop over messages, and over their parts too: the two formats
// that vLLM gives content.
const (
	textTemplate = `{% for message in messages %}<{{ message['role'] }}>{{ message['content'] | trim }}{% endfor %}`
	partTemplate = `{% for message in messages %}<{{ message['role'] }}>{% for part in message['content'] %}{{ part['text'] | trim }}{% endfor %}{% endfor %}`
)

// longChat is a chat of n messages of 499 bytes, with nothing to trim.
func longChat(t testing.TB, n int) *openai.Request {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	list := make([]message, n)
	for i := range list {
		list[i] = message{[2]string{"user", "assistant"}[i%2], strings.Repeat("Is it\n\t\"so\"? ", 40)[:499]}
	}
	raw, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, openai.Chat, `"messages":`+string(raw))
}

// Messages that are taken as they are look like built ones: the role first, no field that
// vLLM does not know, the content in the model's format.
func TestBareMessages(t *testing.T) {
	for _, c := range []struct{ messages, text, parts string }{
		{`{"role":"user","content":"x"}`, `{"role": "user", "content": "x"}`, `{"role": "user", "content": [{"type": "text", "text": "x"}]}`},
		{`{"content":"x","role":"user"}`, `{"role": "user", "content": "x"}`, `{"role": "user", "content": [{"type": "text", "text": "x"}]}`},
		{`{"role":"user","content":"x","odd":1}`, `{"role": "user", "content": "x"}`, `{"role": "user", "content": [{"type": "text", "text": "x"}]}`},
		{`{"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}`, `{"role": "user", "content": "x\ny"}`,
			`{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]}`},
		{`{"role":"assistant","content":null}`, `{"role": "assistant", "content": ""}`, `{"role": "assistant", "content": []}`},
		{`{"role":"system","content":"x-anthropic-billing-header: 1\nx"}`, `{"role": "system", "content": "x"}`, `{"role": "system", "content": [{"type": "text", "text": "x"}]}`},
		{`{"role":"tool","content":"x"}`, `{"role": "tool", "content": "x"}`, `{"role": "tool", "content": "x"}`},
	} {
		for format, want := range map[string]string{FormatString: c.text, FormatOpenAI: c.parts} {
			r := newRenderer(t, Options{Template: `{{ messages[0] | tojson }}`, ContentFormat: format, Version: "0.32.0", Transformers: "5.19.0"})
			out, err := r.Render(nil, nil, parse(t, openai.Chat, `"messages":[`+c.messages+`]`), time.Unix(0, 0))
			if err != nil || string(out.Text) != want {
				t.Errorf("%s as %s: %s (%v), want %s", c.messages, format, out.Text, err, want)
			}
		}
	}
}

// A message of a role and a text costs no memory of its own when it is normalized: only
// reading it does.
func TestNormalizingAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("pools lose memory at random under the race detector; make test counts without it")
	}
	const messages = 200
	req := longChat(t, messages)
	for name, source := range map[string]string{"text": textTemplate, "parts": partTemplate} {
		r := newRenderer(t, Options{Template: source, Version: "0.32.0", Transformers: "5.19.0"})
		read := testing.AllocsPerRun(20, func() {
			if _, err := listField(&request{req, new(work.Budget)}, openai.FieldMessages); err != nil {
				t.Fatal(err)
			}
		})
		var text []byte
		all := testing.AllocsPerRun(20, func() {
			out, err := r.Render(nil, text[:0], req, time.Unix(0, 0))
			if err != nil {
				t.Fatal(err)
			}
			text = out.Text
		})
		if all-read > messages/4 {
			t.Errorf("%s: %.0f allocations beside the %.0f of reading %d messages, want a quarter as many as messages", name, all-read, read, messages)
		}
	}
}
