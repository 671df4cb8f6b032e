package render_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"warmroute/render"
	"warmroute/render/testkit/chattest"
)

// Where the version of transformers is not known, ids are the same or there are none: here
// there are.
func TestUnknownTransformers(t *testing.T) {
	s := server(t, qwen, qwenFlags("", 0), "0.32.0", nil)
	v, err := chattest.Read("internal/chat/testdata/qwen-0.32.0.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range v.Vectors[:100] {
		ids, err := s.Tokenize(c.Path, []byte(c.Body))
		if c.Status == 0 && (err != nil || !slices.EqualFunc(ids, c.IDs, slices.Equal)) {
			t.Errorf("%v: %s", err, c.Body)
		}
	}
}

func TestFlags(t *testing.T) {
	template := filepath.Join(t.TempDir(), "t.jinja")
	if err := os.WriteFile(template, []byte(`{{ style }}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := server(t, qwen, render.Flags{ChatTemplate: template, DefaultKwargs: json.RawMessage(`{"style":"hi"}`), StoreBytes: -1}, "0.32.0", nil)
	ids, err := s.Tokenize("/v1/chat/completions", []byte(`{"model":"m","messages":[{"role":"user","content":"x"}]}`))
	if err != nil || len(ids) != 1 || !slices.Equal(ids[0], []uint32{6023}) {
		t.Errorf("%v %v", ids, err)
	}
	for _, bad := range []render.Flags{{DefaultKwargs: json.RawMessage(`[1]`)}, {ChatTemplate: "/does/not/exist"}} {
		if _, err := render.Open(t.Context(), qwen, bad); err == nil {
			t.Errorf("%+v must be refused", bad)
		}
	}
	if _, err := render.Open(t.Context(), t.TempDir(), render.Flags{}); err == nil {
		t.Error("an empty folder must be refused")
	}
}
