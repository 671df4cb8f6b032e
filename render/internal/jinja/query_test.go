package jinja

import (
	"encoding/json"
	"os"
	"testing"
)

// testdata/content_format.json was made by running the detection functions of
// vLLM 0.32.0 and 0.21.0 on the golden templates and on the snippets in it.
func TestOpenAIContent(t *testing.T) {
	data, err := os.ReadFile("testdata/content_format.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Templates map[string][2]string
		Snippets  [][3]string
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Templates) != goldenTemplates || len(golden.Snippets) < 15 {
		t.Fatalf("%d templates, %d snippets", len(golden.Templates), len(golden.Snippets))
	}
	check := func(name, src, newer, older string) {
		tmpl, err := Compile(src, Options{})
		if Refused(err) == "tag call" {
			return
		}
		if err != nil {
			if newer != "string" || older != "string" {
				t.Errorf("%s does not compile: %v", name, err)
			}
			return
		}
		if got := tmpl.OpenAIContent(false); got != (newer == "openai") {
			t.Errorf("%s: openai %v, vLLM 0.32 says %s", name, got, newer)
		}
		if got := tmpl.OpenAIContent(true); got != (older == "openai") {
			t.Errorf("%s: openai %v, vLLM 0.21 says %s", name, got, older)
		}
	}
	for name, want := range golden.Templates {
		check(name, loadTemplate(t, name), want[0], want[1])
	}
	for _, s := range golden.Snippets {
		check(s[0], s[0], s[1], s[2])
	}
}
