package render

import (
	"os"
	"path/filepath"
	"testing"
)

func TestModelKind(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := modelKind(dir, ""); err != nil || m.Type != "" || m.Coded() != "" {
		t.Errorf("%+v %v", m, err)
	}
	write("config.json", `{"model_type":"gpt_oss"}`)
	if m, _ := modelKind(dir, ""); m.Coded() == "" {
		t.Errorf("%+v", m)
	}
	write("config.json", `{"model_type":"mistral"}`)
	write("tekken.json", `{}`)
	if m, _ := modelKind(dir, ""); m.Coded() != "mistral-common" {
		t.Errorf("%+v", m)
	}
	write("config.json", `{`)
	if _, err := modelKind(dir, ""); err == nil {
		t.Error("a broken config.json must be refused")
	}
}
