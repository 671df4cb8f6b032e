package chat

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"warmroute/render/openai"
)

// TestSGLang compares the texts that SGLang's own chat server renders (test/sglang/render.py)
// with ours. What is refused is counted: chats of ordinary forms must not be.
func TestSGLang(t *testing.T) {
	for _, name := range []string{"string", "parts"} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open("testdata/" + name + "-sglang.json.gz")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			z, err := gzip.NewReader(f)
			if err != nil {
				t.Fatal(err)
			}
			var capture struct {
				Version string
				Vectors []struct {
					Path, Body, Text string
					Status           int
				}
			}
			if err := json.NewDecoder(z).Decode(&capture); err != nil {
				t.Fatal(err)
			}
			r, err := New(Options{Template: templateFile(t, name+".jinja"), SpecialTokens: qwenTokens, Version: capture.Version, Transformers: "5.19.0"})
			if err != nil {
				t.Fatal(err)
			}
			same, refused := 0, map[Why]int{}
			for i, v := range capture.Vectors {
				req, err := openai.Parse(openai.Chat, []byte(v.Body))
				if err != nil {
					continue
				}
				out, err := r.Render(nil, nil, req, time.Unix(0, 0))
				var not *NotInProcess
				switch {
				case errors.As(err, &not):
					refused[not.Why]++
				case err != nil:
					t.Fatal(err)
				case v.Status != 200: // no request is served
				case string(out.Text) != v.Text:
					t.Errorf("vector %d: %s\nrendered %q\nSGLang   %q", i, v.Body, out.Text, v.Text)
				default:
					same++
				}
			}
			t.Logf("%d texts are SGLang's; refused %v", same, refused)
			if len(capture.Vectors) < 300 || same < 100 {
				t.Errorf("%d of %d texts are equal", same, len(capture.Vectors))
			}
		})
	}
}

// TestFieldsOfSGLang: where the prompt is not that of the messages and the template, there is none.
func TestFieldsOfSGLang(t *testing.T) {
	const template = `{% for m in messages %}{{ m.content }}{% endfor %}{{ thinking_mode }}`
	for _, tt := range []struct {
		template, fields string
		refused          bool
	}{
		{template, ``, false},
		{template, `,"input_ids":null`, false},
		{template, `,"input_ids":[1,2]`, true},
		{template, `,"chat_template_kwargs":{"thinking_mode":"disabled"}`, false},
		{template, `,"thinking":{"type":"disabled"}`, true},
		{template, `,"reasoning_effort":"none"`, true},
		{`{{ messages[0].content }}`, `,"thinking":{"type":"disabled"},"reasoning_effort":"none"`, false},
	} {
		r, err := New(Options{Template: tt.template, SpecialTokens: qwenTokens, Version: "sglang 0.5.23", Transformers: "5.19.0"})
		if err != nil {
			t.Fatal(err)
		}
		req, err := openai.Parse(openai.Chat, []byte(`{"model":"m","messages":[{"role":"user","content":"x"}]`+tt.fields+`}`))
		if err != nil {
			t.Fatal(err)
		}
		out, err := r.Render(nil, nil, req, time.Unix(0, 0))
		if refused := errors.As(err, new(*NotInProcess)); refused != tt.refused || !refused && err != nil {
			t.Errorf("%s: %v, %q", tt.fields, err, out.Text)
		}
	}
}
