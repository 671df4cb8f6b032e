package tokens

import (
	"context"
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
	"warmroute/render/chat"
	"warmroute/render/openai"
	"warmroute/render/testkit/golden"
)

// codedFamily is a file of vectors that vLLM's own code made for one of the
// models it renders in code.
type codedFamily struct {
	name   string
	files  string // the tokenizer's folder in .cache/models
	config string // config.json
	flags  Flags
	now    string
}

var codedFamilies = []codedFamily{
	{name: "gpt_oss", files: "gptoss", config: `{"model_type":"gpt_oss","architectures":["GptOssForCausalLM"]}`, now: "2026-03-05"},
	{name: "gpt_oss_sysinstr", files: "gptoss", config: `{"model_type":"gpt_oss"}`, flags: Flags{SystemInstructions: true, StartDate: "2025-12-31"}},
	{name: "deepseek_v32", files: "deepseek_v4", config: `{"model_type":"deepseek_v32","architectures":["DeepseekV32ForCausalLM"]}`},
	{name: "deepseek_v4", files: "deepseek_v4", config: `{"model_type":"deepseek_v4","architectures":["DeepseekV4ForCausalLM"]}`},
	{name: "deepseek_v41", files: "deepseek_v4", config: `{"model_type":"deepseek_v41","architectures":["DeepseekV41ForCausalLM"]}`},
}

// folder lays out a model's folder as a server would have it.
func (f codedFamily) folder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range []string{"tokenizer.json", "tokenizer_config.json"} {
		from, err := filepath.Abs(filepath.Join("..", "..", ".cache", "models", f.files, file))
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

// TestCodedGolden holds ids to those that vLLM's own renderers gave: equal, or an
// objection where vLLM had one.
func TestCodedGolden(t *testing.T) {
	for _, f := range codedFamilies {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			model, err := LoadFolder(f.folder(t), f.flags)
			if err != nil {
				t.Fatal(err)
			}
			model.MaxLen = 131072
			now := time.Unix(0, 0)
			if f.now != "" {
				if now, err = time.Parse(time.DateOnly, f.now); err != nil {
					t.Fatal(err)
				}
			}
			r, err := model.Server("", func() time.Time { return now })
			if err != nil {
				t.Fatal(err)
			}
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

// TestNearMidnight: while the servers' day may be another than the router's, a
// prompt that contains the day has the ids of both days, the likelier first.
func TestNearMidnight(t *testing.T) {
	model, err := LoadFolder(codedFamilies[0].folder(t), Flags{})
	if err != nil {
		t.Fatal(err)
	}
	var now time.Time
	l := NewLocal(LocalOptions{LocalSettings: LocalSettings{TrustUnverified: ^chat.Features(0), SampleEvery: 1}, Now: func() time.Time { return now },
		Reference: NewRemote(RemoteOptions{}), Endpoints: func(string) []Endpoint { return []Endpoint{{Version: "0.32.0"}} }})
	if err := l.Load("m", model); err != nil {
		t.Fatal(err)
	}
	ask := func(route openai.Route, body string, at time.Time) Result {
		t.Helper()
		now = at
		req, err := openai.Parse(route, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		result, err := l.Tokens(context.Background(), req, Served{Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	const chatBody = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	day := func(d int) []uint32 {
		t.Helper()
		r := ask(openai.Chat, chatBody, time.Date(2026, 3, d, 12, 0, 0, 0, time.UTC))
		if r.Other != nil {
			t.Error("at noon there are two days")
		}
		return r.Prompts[0].Tokens
	}
	now = time.Date(2026, 3, 5, 23, 57, 0, 0, time.UTC)
	l.CheckAll(context.Background()) // sends no request: a replica may use another day
	fifth, sixth := day(5), day(6)
	sampled := len(l.samples)
	if slices.Equal(fifth, sixth) || sampled != 2 {
		t.Fatalf("the days are equal, or not sampled: %d", sampled)
	}
	for _, c := range []struct {
		at           time.Time
		first, other []uint32
	}{
		{time.Date(2026, 3, 5, 23, 57, 0, 0, time.UTC), fifth, sixth},
		{time.Date(2026, 3, 6, 0, 3, 0, 0, time.UTC), sixth, fifth},
	} {
		r := ask(openai.Chat, chatBody, c.at)
		if !slices.Equal(r.Prompts[0].Tokens, c.first) || len(r.Other) != 1 || !slices.Equal(r.Other[0].Tokens, c.other) {
			t.Errorf("%v: not the ids of both days", c.at)
		}
		if r := ask(openai.Completions, `{"model":"m","prompt":"x"}`, c.at); r.Other != nil {
			t.Errorf("%v: a text tells no day", c.at)
		}
	}
	if got := len(l.samples) - sampled; got != 2 { // the texts
		t.Errorf("%d requests near midnight wait to be compared with a replica, want 2", got)
	}
}
