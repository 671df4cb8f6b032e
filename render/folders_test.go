package render_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"warmroute/render"
)

// testdata/folders.json has what vLLM 0.33 makes of folders that differ in their templates
// and special tokens (folders.py).
func TestFoldersAgainstVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/folders.json")
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		Error, Text string
		IDs         []uint32
	}
	var golden struct {
		Tokenizer json.RawMessage
		Rows      []struct {
			Name         string
			Files        map[string]json.RawMessage
			Plain, Tools answer
		}
	}
	if err := json.Unmarshal(raw, &golden); err != nil || len(golden.Rows) < 60 {
		t.Fatalf("%d rows, %v", len(golden.Rows), err)
	}
	chat := `{"model":"m","messages":[{"role":"user","content":"hi <b> <i> <m>"}]`
	tools := `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]`
	for _, row := range golden.Rows {
		t.Run(row.Name, func(t *testing.T) {
			dir := t.TempDir()
			row.Files["tokenizer.json"] = golden.Tokenizer
			for name, content := range row.Files {
				var text string
				if json.Unmarshal(content, &text) == nil {
					content = []byte(text)
				}
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m, err := render.Open(t.Context(), dir, render.Flags{StoreBytes: -1})
			if err != nil {
				if !strings.HasPrefix(row.Plain.Error, "load") {
					t.Error(err)
				}
				return
			}
			server, err := m.Server(t.Context(), "0.33.0", nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				name, body string
				want       answer
			}{{"plain", chat + "}", row.Plain}, {"with tools", chat + tools + "}", row.Tools}} {
				text, _, err := server.AppendText(nil, "/v1/chat/completions", []byte(c.body))
				if (err != nil) != (c.want.Error != "") || err == nil && string(text) != c.want.Text {
					t.Errorf("%s: %s %v\nwant %s %s", c.name, text, err, c.want.Text, c.want.Error)
				}
				if ids, _ := server.Tokenize("/v1/chat/completions", []byte(c.body)); err == nil && !slices.EqualFunc(ids, [][]uint32{c.want.IDs}, slices.Equal) {
					t.Errorf("%s: ids %v\nwant %v", c.name, ids, c.want.IDs)
				}
			}
		})
	}
}
