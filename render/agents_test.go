package render_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"warmroute/render"
	"warmroute/render/testkit/golden"
)

// TestAgentsGolden: ids of /v1/responses with tools that a server runs, custom tools and
// namespaces equal vLLM's, for two templates and two models that vLLM renders in code. A
// request that vLLM answers is left to a replica at most once in fifty.
func TestAgentsGolden(t *testing.T) {
	folders := map[string]string{"gpt_oss": codedFamilies[0].folder(t), "deepseek_v4": codedFamilies[3].folder(t), "string": qwen, "parts": qwen}
	models := map[string]*render.Model{}
	for name, folder := range folders {
		flags := render.Flags{MaxLen: 131072, StartDate: "2026-03-05", Transformers: "5.19.0"}
		if folder == qwen {
			flags.ChatTemplate = filepath.Join("internal", "chat", "testdata", name+".jinja")
		}
		m, err := render.Open(t.Context(), folder, flags)
		if err != nil {
			t.Fatal(err)
		}
		models[name] = m
	}
	for _, version := range []string{"0.32.0", "0.33.0"} {
		servers := map[string]*render.Server{}
		for name, m := range models {
			s, err := m.Server(t.Context(), version, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			servers[name] = s
		}
		equal, left := map[string]int{}, 0
		for line := range golden.Lines(t, filepath.Join("testdata", "agents.jsonl.gz")) {
			var v struct {
				Model, Body string
				IDs         []uint32
			}
			if err := json.Unmarshal(line, &v); err != nil {
				t.Fatal(err)
			}
			if v.Model == "" { // the first line describes how the others were made
				continue
			}
			ids, err := servers[v.Model].Tokenize("/v1/responses", []byte(v.Body))
			var refusal *render.Refusal
			switch {
			case errors.As(err, &refusal):
				left++
			case err != nil || len(ids) != 1 || !slices.Equal(ids[0], v.IDs):
				t.Errorf("%s: other ids, %v: %s", v.Model, err, v.Body)
			default:
				equal[v.Model]++
			}
		}
		if total := equal["string"] + equal["parts"] + equal["gpt_oss"] + equal["deepseek_v4"]; len(equal) < 4 || total < 180 || left*50 > total {
			t.Errorf("%s: %v equal, %d left", version, equal, left)
		}
		t.Logf("%s: %v equal, %d left to replicas", version, equal, left)
	}
}
