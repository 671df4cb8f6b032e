package tokens

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"warmroute/render/testkit/chattest"
)

func TestRequestsForTheCommandLine(t *testing.T) {
	m := qwen(t)
	r, err := m.Server("0.32.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := chattest.Read("../../render/chat/testdata/qwen-0.32.0.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range v.Vectors[:100] {
		ids, err := r.Tokenize(c.Path, []byte(c.Body))
		if c.Status == 0 && (err != nil || !slices.EqualFunc(ids, c.IDs, slices.Equal)) {
			t.Errorf("%v: %s", err, c.Body)
		}
	}
}

func TestLoadFolderFlags(t *testing.T) {
	dir := filepath.Join("..", "..", ".cache", "models", "qwen3")
	template := filepath.Join(t.TempDir(), "t.jinja")
	if err := os.WriteFile(template, []byte(`{{ style }}`), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := LoadFolder(dir, Flags{ChatTemplate: template, DefaultKwargs: json.RawMessage(`{"style":"hi"}`), StoreBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Server("0.32.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := r.Tokenize("/v1/chat/completions", []byte(`{"model":"m","messages":[{"role":"user","content":"x"}]}`))
	if err != nil || len(ids) != 1 || !slices.Equal(ids[0], []uint32{6023}) {
		t.Errorf("%v %v", ids, err)
	}
	for _, bad := range []Flags{{DefaultKwargs: json.RawMessage(`[1]`)}, {ChatTemplate: "/does/not/exist"}} {
		if _, err := LoadFolder(dir, bad); err == nil {
			t.Errorf("%+v must be refused", bad)
		}
	}
	if _, err := LoadFolder(t.TempDir(), Flags{}); err == nil {
		t.Error("an empty folder must be refused")
	}
}
