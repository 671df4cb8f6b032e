package render_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"warmroute/render"
	"warmroute/render/testkit/golden"
)

// codedFamily is a file of vectors that vLLM's own code made for one of the
// models it renders in code.
type codedFamily struct {
	name   string
	files  string // the tokenizer's folder in .cache/models
	config string // config.json
	flags  render.Flags
	now    string
}

var codedFamilies = []codedFamily{
	{name: "gpt_oss", files: "gptoss", config: `{"model_type":"gpt_oss","architectures":["GptOssForCausalLM"]}`, now: "2026-03-05"},
	{name: "gpt_oss_sysinstr", files: "gptoss", config: `{"model_type":"gpt_oss"}`, flags: render.Flags{SystemInstructions: true, StartDate: "2025-12-31"}},
	{name: "deepseek_v32", files: "deepseek_v4", config: `{"model_type":"deepseek_v32","architectures":["DeepseekV32ForCausalLM"]}`},
	{name: "deepseek_v4", files: "deepseek_v4", config: `{"model_type":"deepseek_v4","architectures":["DeepseekV4ForCausalLM"]}`},
	{name: "deepseek_v41", files: "deepseek_v4", config: `{"model_type":"deepseek_v41","architectures":["DeepseekV41ForCausalLM"]}`},
}

// folder lays out a model's folder as a server would have it.
func (f codedFamily) folder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range []string{"tokenizer.json", "tokenizer_config.json"} {
		from, err := filepath.Abs(filepath.Join("..", ".cache", "models", f.files, file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(from); err != nil {
			t.Fatalf("make setup fetches the model's files: %v", err)
		}
		if err := os.Symlink(from, filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(f.config), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// codedVector is one answer of vLLM.
type codedVector struct {
	Route   string
	Request json.RawMessage
	IDs     json.RawMessage
	Error   string
}

func (v codedVector) prompts(t *testing.T) [][]uint32 {
	t.Helper()
	var many [][]uint32
	if json.Unmarshal(v.IDs, &many) == nil {
		return many
	}
	var one []uint32
	if err := json.Unmarshal(v.IDs, &one); err != nil {
		t.Fatal(err)
	}
	return [][]uint32{one}
}

func readCoded(t *testing.T, name string) []codedVector {
	t.Helper()
	var all []codedVector
	for line := range golden.Lines(t, filepath.Join("testdata", name+".jsonl.gz")) {
		var v codedVector
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		if v.Route != "" { // the first line describes how the others were made
			all = append(all, v)
		}
	}
	if len(all) < 150 {
		t.Fatalf("%d vectors", len(all))
	}
	return all
}

// server opens a folder for servers of a version.
func server(t testing.TB, dir string, f render.Flags, version string, now func() time.Time) *render.Server {
	t.Helper()
	m, err := render.Open(t.Context(), dir, f)
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Server(t.Context(), version, now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCodedGolden: ids equal the ids of vLLM's own renderers, or an objection stands
// where vLLM had one.
func TestCodedGolden(t *testing.T) {
	for _, f := range codedFamilies {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.flags.MaxLen = 131072
			now := time.Unix(0, 0)
			if f.now != "" {
				var err error
				if now, err = time.Parse(time.DateOnly, f.now); err != nil {
					t.Fatal(err)
				}
			}
			r := server(t, f.folder(t), f.flags, render.CodedVersion, func() time.Time { return now })
			bad := 0
			for i, v := range readCoded(t, f.name) {
				if bad > 8 {
					break
				}
				if why := differs(t, r, v); why != "" {
					bad++
					t.Errorf("%d: %s: %s\n%s", i+2, v.Route, why, v.Request)
				}
			}
		})
	}
}

func differs(t *testing.T, r *render.Server, v codedVector) string {
	t.Helper()
	ids, err := r.Tokenize(v.Route, v.Request)
	var refusal *render.Refusal
	switch {
	case errors.As(err, &refusal):
		return "refused: " + refusal.Why + "; vLLM: " + v.Error
	case (err != nil) != (v.Error != ""):
		return fmt.Sprintf("error %v where vLLM has %q", err, v.Error)
	case err != nil:
		return ""
	}
	want := v.prompts(t)
	if slices.EqualFunc(ids, want, slices.Equal) {
		return ""
	}
	if len(ids) != len(want) {
		return "another number of prompts"
	}
	for i := range ids {
		at := 0
		for at < min(len(ids[i]), len(want[i])) && ids[i][at] == want[i][at] {
			at++
		}
		if at < max(len(ids[i]), len(want[i])) {
			return "differs from id " + string(rune('0'+i)) + ":" + strconv.Itoa(at) + " of " + strconv.Itoa(len(want[i])) + ", ours " + strconv.Itoa(len(ids[i]))
		}
	}
	return ""
}
