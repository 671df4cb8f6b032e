package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A model folder's configuration names special tokens and has a chat template.
func TestSettingsOfModels(t *testing.T) {
	for _, name := range someModels() {
		if slices.Contains(rebuilt, name) {
			continue // a vocabulary and merges, no configuration
		}
		c := model(t, name).Config()
		if c.Special["eos_token"] == "" || name != "llama2" && c.Templates["default"] == "" {
			t.Errorf("%s: no eos token or no chat template in %v", name, c.Special)
		}
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "tokenizer.json", small(true, dict{"pre_tokenizer": byteLevelStep(false, true), "added_tokens": []any{token(0, "<s>", "sr"), token(0, "<x>", "sr")}}, nil))
	write(t, dir, "tokenizer_config.json", `{"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": true, "normalized": false},
		"image_token": "<i>", "pad_token": null, "add_bos_token": true, "additional_special_tokens": ["<x>", {"content": "<y>", "normalized": false}],
		"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}], "tokenizer_class": "LlamaTokenizerFast"}`)
	tok, err := Load(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := tok.Config()
	if c.Special["bos_token"] != "<s>" || c.Special["eos_token"] != "</s>" || c.Special["image_token"] != "<i>" || c.Special["pad_token"] != "" {
		t.Errorf("special tokens %v", c.Special)
	}
	if !slices.Equal(c.Extra, []string{"<x>", "<y>"}) || c.Templates["tool_use"] != "T" || c.AddBOS == nil || !*c.AddBOS || c.AddEOS != nil {
		t.Errorf("config %+v", c)
	}
	id := func(s string) uint32 {
		v, ok := tok.TokenID(s)
		if !ok {
			t.Errorf("no token %s", s)
		}
		return v
	}
	space := id("Ġ")
	// <s> keeps the file's rstrip, <x> loses it to the configuration, and </s>,
	// <i> and <y>, missing in the file, are added.
	got := tok.Append(nil, nil, []byte("<s> <x> </s><i><y>"), true)
	if want := []uint32{id("<s>"), id("<x>"), id("</s>"), id("<i>"), id("<y>")}; !slices.Equal(got, want) {
		t.Errorf("ids %v, want %v (a space is %d)", got, want, space)
	}
	write(t, dir, "chat_template.json", `{"chat_template": "J"}`)
	if c, err = ReadConfig(dir); err != nil || c.Template(false) != "D" || c.Template(true) != "T" {
		t.Errorf("templates %v, %v", c.Templates, err)
	}
	// The servers of a model that reads images have the processor's files, even if the folder lacks them.
	write(t, dir, "config.json", `{"vision_config":{}}`)
	if c, err = ReadConfig(dir); err != nil || c.Template(false) != "J" || c.Template(true) != "T" {
		t.Errorf("templates %v %v, %v", c.Templates, c.Processor, err)
	}
	write(t, dir, "processor_config.json", `{"chat_template":"P"}`)
	if c, err = ReadConfig(dir); err != nil || c.Template(false) != "P" || c.Template(true) != "T" {
		t.Errorf("templates %v %v, %v", c.Templates, c.Processor, err)
	}
	write(t, dir, "additional_chat_templates/rag.jinja", "R")
	write(t, dir, "chat_template.jinja", "F")
	if c, err = ReadConfig(dir); err != nil || c.Templates["default"] != "F" || c.Templates["rag"] != "R" || c.Template(true) != "F" {
		t.Errorf("templates %v, %v", c.Templates, err)
	}
	for file, text := range map[string]string{
		"tokenizer_config.json": `{"bos_token": 3}`, "special_tokens_map.json": `{"eos_token": []}`, "added_tokens.json": `[]`,
	} {
		bad := t.TempDir()
		write(t, bad, file, text)
		if _, err := ReadConfig(bad); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(file, ".json")) {
			t.Errorf("%s %s: %v", file, text, err)
		}
	}
}

// The ids transformers 5.19 gives models it takes for LlamaTokenizer.
func TestLlamaClass(t *testing.T) {
	texts := goldenStrings(t)
	for _, name := range []string{"llama2", "deepseek_v3"} {
		tok, err := Load(modelDir(t, name), Options{Class: "LlamaTokenizer"})
		if err != nil {
			t.Fatal(err)
		}
		g := readGoldenFile(t, "class."+name)
		if len(g.IDs) != len(texts) {
			t.Fatalf("%d golden id lists for %d strings", len(g.IDs), len(texts))
		}
		bad := 0
		for i, text := range texts {
			if got := tok.Append(nil, nil, []byte(text), false); !slices.Equal(got, g.IDs[i]) {
				if bad++; bad < 4 {
					t.Errorf("%s: string %d %.60q:\n got %v\nwant %v", name, i, text, got, g.IDs[i])
				}
			}
		}
		if got := tok.Append(nil, nil, []byte("x"), true); !slices.Equal(got, g.Special) {
			t.Errorf("%s: x with special tokens: %v, want %v", name, got, g.Special)
		}
		if bad > 0 {
			t.Errorf("%s: %d of %d strings differ", name, bad, len(texts))
		}
	}
	if _, err := Parse([]byte(`{}`), Options{Class: "Other"}); err == nil || !strings.Contains(err.Error(), `"Other"`) {
		t.Errorf("an unknown class: %v", err)
	}
}

// TestWhatIsNoFile: a folder that holds something else where a file is looked for is
// refused at once, by name.
func TestWhatIsNoFile(t *testing.T) {
	for name, make := range map[string]func(string) error{
		"chat_template.jinja":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"chat_template.json":    func(path string) error { return os.Mkdir(path, 0o700) },
		"tokenizer_config.json": func(path string) error { return os.WriteFile(path, []byte("[]"), 0o600) },
	} {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadConfig(dir); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "Go value") {
			t.Errorf("%s: %v", name, err)
		}
	}
	pipe := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readAside(pipe); err == nil || !strings.Contains(err.Error(), "tokenizer.json is not a file") {
		t.Errorf("a pipe: %v", err)
	}
	if _, err := ReadFile(pipe); err == nil || !strings.Contains(err.Error(), "tokenizer.json is not a file") {
		t.Errorf("a pipe: %v", err)
	}
}

func FuzzReadConfig(f *testing.F) {
	f.Add(`{"bos_token":"<s>","extra_special_tokens":["<x>"],"image_token":"<i>"}`, `{"bos_token":{"content":""},"extra_special_tokens":["<y>",{"content":"<z>"}]}`, `{"chat_template":"x"}`)
	f.Add(`{"extra_special_tokens":{"a":"b"},"chat_template":[{"name":"default","template":"d"}]}`, `{"extra_special_tokens":{"a":"c"},"eos_token":null}`, `{"chat_template":null}`)
	f.Fuzz(func(t *testing.T, settings, special, legacy string) {
		dir := t.TempDir()
		write(t, dir, "tokenizer_config.json", settings)
		write(t, dir, "special_tokens_map.json", special)
		write(t, dir, "chat_template.json", legacy)
		write(t, dir, "config.json", `{"vision_config":{}}`)
		if c, err := ReadConfig(dir); err == nil {
			c.Template(false)
			c.tokens(nil)
		}
	})
}
