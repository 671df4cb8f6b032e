package jinja

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

// testdata/content_format.json was made by running the detection functions of vLLM 0.32.0,
// 0.21.0 and 0.33.0 on the golden templates and on the snippets in it (content_format.py).
func TestOpenAIContent(t *testing.T) {
	data, err := os.ReadFile("testdata/content_format.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Templates map[string][3]string
		Snippets  [][4]string
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Templates) != goldenTemplates || len(golden.Snippets) < 30 {
		t.Fatalf("%d templates, %d snippets", len(golden.Templates), len(golden.Snippets))
	}
	check := func(name, src string, formats [3]string) {
		tmpl, err := Compile(src, Options{})
		if Refused(err) == "tag call" {
			return
		}
		if err != nil {
			if slices.Contains(formats[:], "openai") {
				t.Errorf("%s does not compile: %v", name, err)
			}
			return
		}
		for i, d := range []Detection{Detection32, Detection21, Detection33} {
			if got := tmpl.OpenAIContent(d); formats[i] != "" && got != (formats[i] == "openai") {
				t.Errorf("%s: openai %v, vLLM 0.%d says %s", name, got, []int{32, 21, 33}[i], formats[i])
			}
		}
	}
	for name, want := range golden.Templates {
		check(name, loadTemplate(t, name), want)
	}
	for _, s := range golden.Snippets {
		check(s[0], s[0], [3]string(s[1:]))
	}
}
