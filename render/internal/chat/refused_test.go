package chat

import (
	"errors"
	"testing"
	"time"

	"warmroute/render/openai"
)

// TestTemplatesThatAreNotRenderedHere: a model is served even if its template needs a
// feature that this process does not render; its chats are refused by the feature's name.
func TestTemplatesThatAreNotRenderedHere(t *testing.T) {
	for template, want := range map[string]Why{
		"{% include f %}{{ messages[0].content }}":                         "template_needs_tag_include",
		"{{ messages[0].content|urlize }}":                                 "template_needs_filter_urlize",
		"{% if false %}{{ 1|urlize }}{% endif %}{{ messages[0].content }}": "",
		"{{ 1/0 }}": TemplateFailed,
	} {
		r, err := New(Options{Template: template})
		if err != nil {
			t.Fatalf("%s: %v", template, err)
		}
		req, err := openai.Parse(openai.Chat, []byte(`{"model":"m","messages":[{"role":"user","content":"x"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Render(nil, nil, req, time.Now())
		var not *NotInProcess
		if errors.As(err, &not) != (want != "") || want != "" && not.Why != want {
			t.Errorf("%s: %v, want %q", template, err, want)
		}
	}
}

// TestEmptyPartsOfAResult: vLLM's encoder of DeepSeek V4.1 cannot copy an empty list
// of parts that the OpenAI class of its message reads lazily. A tool's result that
// names no call is of vLLM's own class, which reads it at once.
func TestEmptyPartsOfAResult(t *testing.T) {
	r, err := New(Options{Model: Model{Type: "deepseek_v41"}, Version: "0.32.0"})
	if err != nil {
		t.Fatal(err)
	}
	for result, good := range map[string]bool{
		`{"role":"tool","content":[]}`:                               true,
		`{"role":"tool","content":[],"tool_call_id":"x"}`:            false,
		`{"role":"tool","content":[],"tool_call_id":null}`:           true,
		`{"role":"tool","content":[],"tool_call_id":"x","name":"f"}`: true,
	} {
		req, err := openai.Parse(openai.Chat, []byte(`{"model":"m","messages":[{"role":"user","content":"x"},`+result+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = r.Render(nil, nil, req, time.Now()); (err == nil) != good {
			t.Errorf("%s: %v", result, err)
		}
	}
}
