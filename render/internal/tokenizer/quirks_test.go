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

	"warmroute/render/testkit/golden"
)

var updateQuirks = flag.Bool("update", false, "rewrite the table of testdata/quirks.md")

// quirk is a model's folder and the ids of vLLM and transformers with it
// (scripts/quirks.py).
type quirk struct {
	Name  string
	Files map[string]string
	Fill  int // entries to fill the vocabulary up to

	VLLM032   vllmIDs `json:"v0.32"`
	VLLM021   vllmIDs `json:"v0.21"`      // with transformers 5
	VLLM021T4 vllmIDs `json:"v0.21 of 4"` // with transformers 4
}

// vllmIDs are a vLLM's ids of the corpus' texts, with special tokens and without.
type vllmIDs struct {
	Class, Error  string
	Equal         bool // to vLLM 0.32's, and not repeated
	With, Without [][]uint32
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

// differs names the first text that a tokenizer encodes differently than a vLLM, "" if none.
func (e vllmIDs) differs(tok *Tokenizer, texts []string) string {
	for i, text := range texts {
		for special, want := range map[bool][][]uint32{true: e.With, false: e.Without} {
			if got := tok.Append(nil, nil, []byte(text), special); !slices.Equal(got, want[i]) {
				return fmt.Sprintf("%q, special tokens %v: %d, vLLM %d", text, special, got, want[i])
			}
		}
	}
	return ""
}

// readings are the ways in which a row's folder is read here.
type readings struct {
	file, class *Tokenizer // class: nil where the file alone counts
	refused     string     // why neither is
}

// read reads the row's folder by its file and, where that may give other ids, by its class.
func (q quirk) read(t *testing.T, texts []string, models []json.RawMessage) (r readings) {
	t.Helper()
	dir := q.folder(t, models)
	var err error
	if r.file, err = Load(dir, Options{}); err != nil {
		_, reason, _ := strings.Cut(err.Error(), "tokenizer.json: ")
		return readings{refused: "refused: " + reason}
	}
	for _, name := range r.file.Config().alike {
		other, err := Load(dir, Options{Class: name})
		if err != nil {
			t.Errorf("%s: by %s: %v", q.Name, name, err)
			continue
		}
		for _, text := range texts {
			if !slices.Equal(other.Append(nil, nil, []byte(text), true), r.file.Append(nil, nil, []byte(text), true)) {
				t.Errorf("%s: %s is taken to give what the file gives, but not for %q", q.Name, name, text)
			}
		}
	}
	var config struct {
		Type string `json:"model_type"`
	}
	if err := json.Unmarshal([]byte(q.Files["config.json"]), &config); err != nil {
		t.Fatal(err)
	}
	if class := r.file.Config().Classed(config.Type); class != "" {
		if r.class, err = Load(dir, Options{Class: class}); err != nil {
			t.Errorf("%s: by the class: %v", q.Name, err)
		}
	}
	return r
}

// of returns how a vLLM's ids are computed here: by the file, by the class, or not.
func (r readings) of(e vllmIDs, texts []string) (how, why string) {
	switch {
	case r.refused != "":
		return r.refused, ""
	case e.Error != "":
		return "not loaded by vLLM: " + e.Error, ""
	}
	byFile := e.differs(r.file, texts)
	if byFile == "" {
		return "by the file", ""
	}
	if r.class == nil {
		return "otherwise", byFile
	}
	byClass := e.differs(r.class, texts)
	if byClass == "" {
		return "by the class", ""
	}
	return "otherwise", "by the file " + byFile + "; by the class " + byClass
}

// older is the table's column of a vLLM before 0.32.
func (r readings) older(e vllmIDs, texts []string) string {
	switch {
	case e.Equal:
		return "equal"
	case e.Error != "":
		return e.Error
	}
	how, _ := r.of(e, texts)
	return strings.Split(how, ":")[0]
}

// TestQuirks: of every folder that transformers does not read by its tokenizer.json
// alone, ids are those of vLLM 0.32's own tokenizer, in one of the two ways that a
// replica's answer decides between, or the folder is refused by a reason; so are those
// of vLLM 0.21 with the same generation of transformers. testdata/quirks.md has the
// rows that are not read by the file, with transformers 4 besides, of which some are had in neither way.
func TestQuirks(t *testing.T) {
	var corpus struct {
		Texts  []string
		Models []json.RawMessage
	}
	var outcomes []string // in the order of their first folders
	folders := map[string][]string{}
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
		r := q.read(t, corpus.Texts, corpus.Models)
		here, why := r.of(q.VLLM032, corpus.Texts)
		if why != "" {
			t.Errorf("%s: %s", q.Name, why)
		}
		v5, v4 := r.older(q.VLLM021, corpus.Texts), r.older(q.VLLM021T4, corpus.Texts)
		if v5 == "otherwise" {
			t.Errorf("%s: vLLM 0.21 has other ids", q.Name)
		}
		if here != "by the file" || v5 != "equal" {
			outcome := fmt.Sprintf("| %s | %s | %s |", here, v5, v4)
			if folders[outcome] == nil {
				outcomes = append(outcomes, outcome)
			}
			folders[outcome] = append(folders[outcome], q.Name)
		}
	}
	if rows < 80 {
		t.Errorf("%d rows", rows)
	}
	table := "| here | vLLM 0.21 | with transformers 4 | folders |\n|---|---|---|---|\n"
	for _, o := range outcomes {
		table += o + " " + strings.Join(folders[o], "; ") + " |\n"
	}
	path := filepath.Join("testdata", "quirks.md")
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(doc), "| here |")
	if want := head + table; ok && *updateQuirks && !t.Failed() {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(doc) {
		t.Errorf("testdata/quirks.md is not what go -C render test ./internal/tokenizer -run Quirks -update writes\n%s", table)
	}
}
