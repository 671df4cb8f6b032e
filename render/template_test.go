package render_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warmroute/render"
)

func TestAppendJSON(t *testing.T) {
	for document, want := range map[string]string{
		`{"b":1.50,"a":[1e-7,12345678901234567890,null,true]}`: `x{"b": 1.5, "a": [1e-07, 12345678901234567890, null, true]}`,
		` "\u00e9\n" `:      `x"é\n"`,
		`{"a":1,"a":2}`:     "an object repeats a key",
		`"\ud800"`:          "a string holds a lone surrogate",
		`{"a":1} and so on`: "not valid JSON",
	} {
		got, err := render.AppendJSON([]byte("x"), []byte(document))
		if said := string(got); err != nil && (said != "x" || !strings.HasPrefix(err.Error(), want)) || err == nil && said != want {
			t.Errorf("%s: %s, %v; want %s", document, got, err, want)
		}
	}
}

func TestTemplate(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := render.ReadTemplate(dir); err == nil {
		t.Error("a folder without a template must be refused")
	}
	config := `{"bos_token":"<s>","chat_template":"{{ bos_token }}{{ strftime_now('%Y') }}{{ messages[0].content }}{{ style }}"}`
	if err := os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	source, special, err := render.ReadTemplate(dir)
	if err != nil {
		t.Fatal(err)
	}
	template, err := render.NewTemplate(source, special)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC)
	text, err := template.Append([]byte("x"), []byte(`{"messages":[{"content":"hi"}],"chat_template_kwargs":{"style":"!"}}`), now)
	if string(text) != "x<s>2026hi!" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	for _, bad := range []string{`{}`, `[]`, `{"messages":[],"chat_template_kwargs":1}`, `{"messages":[]}`} { // the last fails in the template
		if text, err := template.Append([]byte("x"), []byte(bad), now); err == nil || string(text) != "x" {
			t.Errorf("%s: %q, %v", bad, text, err)
		}
	}
	if _, err := render.NewTemplate("{% if %}", nil); err == nil {
		t.Error("a template that does not compile must be refused")
	}
}
