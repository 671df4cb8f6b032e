package tokenizer

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"warmroute/test/golden"
)

var updateQuirks = flag.Bool("update", false, "rewrite the table of docs/quirks.md")

// quirk is a model's folder and what transformers encodes with it (scripts/quirks.py).
type quirk struct {
	Name  string
	Files map[string]string
	Fill  int    // entries to fill the vocabulary up to
	V4    string // whether transformers 4 agrees with 5: "equal", "differs", or its error
	Slow  string // and its slow tokenizer; "" where the folder has no files of one
	V5    struct {
		Class, Error  string
		With, Without [][]uint32
	}
}

// folder lays the row's files out.
func (q quirk) folder(t *testing.T, models []json.RawMessage) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range q.Files {
		if name == "tokenizer.json" {
			text = q.tokenizer(t, text, models)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (q quirk) tokenizer(t *testing.T, text string, models []json.RawMessage) string {
	t.Helper()
	var file map[string]json.RawMessage
	var at int
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file["model"], &at); err != nil {
		t.Fatal(err)
	}
	file["model"] = models[at]
	if q.Fill > 0 {
		var added []json.RawMessage
		var model struct{ Vocab map[string]int }
		if err := json.Unmarshal(file["added_tokens"], &added); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(models[at], &model); err != nil {
			t.Fatal(err)
		}
		for i := len(model.Vocab); i < q.Fill; i++ {
			added = append(added, fmt.Appendf(nil, `{"id":%d,"content":"<SPECIAL_%d>","special":true,"normalized":false}`, i, i))
		}
		b, err := json.Marshal(added)
		if err != nil {
			t.Fatal(err)
		}
		file["added_tokens"] = b
	}
	b, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// equals reports whether a tokenizer encodes the texts as vLLM does.
func (q quirk) equals(tok *Tokenizer, texts []string) (differs string) {
	for i, text := range texts {
		for special, want := range map[bool][][]uint32{true: q.V5.With, false: q.V5.Without} {
			if got := tok.Append(nil, []byte(text), special); !slices.Equal(got, want[i]) {
				return fmt.Sprintf("%q, special tokens %v: %d, vLLM %d", text, special, got, want[i])
			}
		}
	}
	return ""
}

// here says how the row's ids are had here: by the file, by a class, or why not.
func (q quirk) here(t *testing.T, texts []string, models []json.RawMessage) string {
	t.Helper()
	dir := q.folder(t, models)
	tok, err := Load(dir, Options{})
	if err != nil {
		_, reason, _ := strings.Cut(err.Error(), "tokenizer.json: ")
		return "refused: " + reason
	}
	if q.V5.Error != "" {
		return "not loaded by vLLM: " + q.V5.Error
	}
	byFile := q.equals(tok, texts)
	for _, name := range tok.Config().alike {
		if other, err := Load(dir, Options{Class: name}); err != nil || (q.equals(other, texts) == "") != (byFile == "") {
			t.Errorf("%s: %s is taken to give what the file gives: %v", q.Name, name, err)
		}
	}
	if byFile == "" {
		return "by the file"
	}
	var config struct {
		Type string `json:"model_type"`
	}
	if err := json.Unmarshal([]byte(q.Files["config.json"]), &config); err != nil {
		t.Fatal(err)
	}
	class := tok.Config().Classed(config.Type)
	if class == "" {
		t.Errorf("%s: %s", q.Name, byFile)
		return "WRONG"
	}
	if tok, err = Load(dir, Options{Class: class}); err != nil {
		t.Errorf("%s: by the class: %v", q.Name, err)
		return "WRONG"
	}
	if byClass := q.equals(tok, texts); byClass != "" {
		t.Errorf("%s: by the file %s; by %s %s", q.Name, byFile, class, byClass)
		return "WRONG"
	}
	return "by the class"
}

// TestQuirks: of every folder that transformers does not read by its tokenizer.json
// alone, ids are vLLM's, in one of the two ways that a replica's answer decides
// between, or the folder is refused by a reason. docs/quirks.md has the outcome.
func TestQuirks(t *testing.T) {
	var corpus struct {
		Texts  []string
		Models []json.RawMessage
	}
	var table strings.Builder
	table.WriteString("| folder | transformers 4, slow | transformers 4, fast | transformers 5 takes | here |\n|---|---|---|---|---|\n")
	rows := 0
	for line := range golden.Lines(t, filepath.Join("testdata", "quirks.jsonl.gz")) {
		if corpus.Texts == nil {
			if err := json.Unmarshal(line, &corpus); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var q quirk
		if err := json.Unmarshal(line, &q); err != nil {
			t.Fatal(err)
		}
		rows++
		slow := q.Slow
		if slow == "" {
			slow = "–"
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n", q.Name, slow, q.V4, q.V5.Class, q.here(t, corpus.Texts, corpus.Models))
	}
	if rows < 80 {
		t.Errorf("%d rows", rows)
	}
	path := filepath.Join("..", "..", "docs", "quirks.md")
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(doc), "| folder |")
	if want := head + table.String(); ok && *updateQuirks && !t.Failed() {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(doc) {
		t.Errorf("docs/quirks.md is not what go test ./internal/tokenizer -run Quirks -update writes\n%s", table.String())
	}
}
