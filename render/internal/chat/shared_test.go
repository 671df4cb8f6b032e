package chat

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/internal/tokenizer"
	"warmroute/render/openai"
	"warmroute/render/testkit/chattest"
)

// everyRenderer is one of each way to render.
func everyRenderer(t *testing.T) map[string]*Renderer {
	all := map[string]*Renderer{}
	for _, name := range []string{"parts", "string"} {
		for version, transformers := range map[string]string{"0.21.0": "5.23.0", "0.32.0": "5.19.0", "": ""} {
			all[name+version] = newRenderer(t, Options{Template: templateFile(t, name+".jinja"), SpecialTokens: qwenTokens, Version: version,
				ResponsesToolFields: functionToolFields, Transformers: transformers})
		}
	}
	for _, kind := range []string{"gpt_oss", "deepseek_v32", "deepseek_v4", "deepseek_v41"} {
		all[kind] = newRenderer(t, Options{Model: Model{Type: kind}, Version: "0.32.0"})
	}
	for _, version := range []int{1, 2, 3, 7, 11, 13, 15} {
		model := Model{MistralFormat: true, Mistral: tokenizer.Mistral{Version: version, Settings: version == 15, Efforts: []string{"none", "high"}, Effort: "none"}}
		all[fmt.Sprint("mistral", version)] = newRenderer(t, Options{Model: model, Version: "0.32.0"})
	}
	return all
}

// remembered is the request as a Reader hands it out that keeps every message: white
// space behind the last fills the array.
func remembered(t *testing.T, m *openai.Reader, c chattest.Case) (*openai.Request, openai.Field) {
	req, err := openai.Parse(c.Route, []byte(c.Body))
	if err != nil {
		return nil, 0
	}
	f := openai.FieldMessages
	if c.Route == openai.Responses {
		f = openai.FieldInput
	}
	list := req.Raw(f)
	if len(list) == 0 || list[0] != '[' {
		return nil, 0
	}
	padded := append(bytes.Clone(list[:len(list)-1]), strings.Repeat(" ", 4096)+"]"...)
	req, err = m.Parse(c.Route, bytes.Replace([]byte(c.Body), list, padded, 1))
	if err != nil {
		t.Fatal(err)
	}
	return req, f
}

// Requests share the messages that a Reader remembers, so rendering changes nothing of
// them, and gives the same once more.
func TestRenderingChangesNoMessage(t *testing.T) {
	cases := append(chattest.Generate(11, 400, "m"), chattest.GenerateCoded(12, 400, "m", "</s>", "[INST]", "<|end|>")...)
	for name, r := range everyRenderer(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := openai.NewReader(openai.DefaultMemory)
			rendered, features := 0, openai.Features(0)
			for _, c := range cases {
				req, f := remembered(t, m, c)
				if req == nil {
					continue
				}
				values := func() string {
					v, _, err := req.Values(nil, f)
					if err != nil {
						t.Fatal(err)
					}
					text, err := pyvalue.Repr(nil, v)
					if err != nil {
						t.Fatal(err)
					}
					return text
				}
				before := values()
				first, err := r.Render(nil, nil, req, time.Unix(0, 0))
				if after := values(); after != before {
					t.Fatalf("messages\n%s\nbecame\n%s\nby %s", before, after, c.Body)
				}
				again, errAgain := r.Render(nil, nil, req, time.Unix(0, 0))
				if !bytes.Equal(first.Text, again.Text) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
					t.Fatalf("%q %v, and again %q %v by %s", first.Text, err, again.Text, errAgain, c.Body)
				}
				if err == nil {
					rendered++
					features |= first.Features
				}
			}
			if t.Logf("%d rendered, features %v", rendered, features); rendered < 100 {
				t.Errorf("only %d are rendered", rendered)
			}
		})
	}
}
