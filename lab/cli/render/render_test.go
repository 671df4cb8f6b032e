package render

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warmroute/render/testkit/golden"
)

const vectors = "../../../render/internal/jinja/testdata"

type rendered struct {
	Text  *string
	Error *string
}

func loadGolden(t *testing.T, template string) (requests []byte, want []json.RawMessage) {
	t.Helper()
	var conversations []map[string]json.RawMessage
	data, err := os.ReadFile(filepath.Join(vectors, "conversations.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &conversations); err != nil {
		t.Fatal(err)
	}
	var all map[string]map[string]json.RawMessage
	golden.Read(t, filepath.Join(vectors, "rendered.json.gz"), &all)
	for _, c := range conversations {
		var name string
		if err := json.Unmarshal(c["name"], &name); err != nil {
			t.Fatal(err)
		}
		var line bytes.Buffer
		if err := json.Compact(&line, []byte(`{"messages":`+string(c["messages"])+`,"tools":`+string(c["tools"])+
			`,"add_generation_prompt":`+string(c["add_generation_prompt"])+`,"chat_template_kwargs":`+string(c["kwargs"])+`}`)); err != nil {
			t.Fatal(err)
		}
		requests = append(append(requests, line.Bytes()...), '\n')
		want = append(want, all[template][name])
	}
	return requests, want
}

func TestRunAgainstGolden(t *testing.T) {
	bos, eos := "<BOS>", "<EOS>"
	now, err := time.Parse(NowLayout, "2026-03-05T07:08:09")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, name := range []string{"meta-llama-Llama-3.1-8B-Instruct", "Qwen-Qwen3-0.6B", "google-gemma-2-2b-it"} {
		path := filepath.Join("../../../.cache/templates", name+".jinja")
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("template %s is missing: run scripts/fetch-templates.sh", name)
		}
		requests, want := loadGolden(t, name)
		var out bytes.Buffer
		if err := Run(context.Background(), bytes.NewReader(requests), &out, Options{Template: path, Now: now, BOS: &bos, EOS: &eos}); err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			var got rendered
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Fatal(err)
			}
			var text string
			if json.Unmarshal(want[i], &text) == nil {
				if got.Text == nil || *got.Text != text {
					t.Errorf("%s, request %d: %s", name, i, line)
				}
			} else if got.Error == nil || *got.Error == "" {
				t.Errorf("%s, request %d rendered, want an error", name, i)
			}
			checked++
		}
	}
	if checked != 90 {
		t.Errorf("checked %d answers, want 90", checked)
	}
}

func TestRunModelFolder(t *testing.T) {
	dir := t.TempDir()
	config := `{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": [{"name": "other", "template": "no"},
		{"name": "default", "template": "{{ bos_token }}{{ messages[0].content }}{{ x }}{{ eos_token }}\n"}]}`
	if err := os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	in := "{\"messages\":[{\"role\":\"user\",\"content\":\"hé\"}],\"chat_template_kwargs\":{\"x\":1.0}}\n\nnot json\n{}\n[]\n"
	var out bytes.Buffer
	if err := Run(context.Background(), strings.NewReader(in), &out, Options{Model: dir}); err != nil {
		t.Fatal(err)
	}
	want := `{"text": "<s>hé1.0</s>"}
{"error": "the request: not valid JSON at byte 0"}
{"error": "messages is not a list"}
{"error": "the request is not an object"}
`
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for _, o := range []Options{{}, {Model: dir, Template: "x"}, {Template: filepath.Join(dir, "none")}, {Model: filepath.Join(dir, "none")}} {
		if err := Run(context.Background(), strings.NewReader(""), &out, o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}
