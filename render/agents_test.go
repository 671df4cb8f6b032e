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

// TestAgentsGolden: ids equal vLLM's, for three templates and two models that vLLM renders
// in code: of /v1/responses with tools that a server runs, custom tools and namespaces, and
// of bodies of odd shapes on every route. A request that vLLM answers is left to a replica
// at most once in fifty.
func TestAgentsGolden(t *testing.T) {
	folders := map[string]string{"gpt_oss": codedFamilies[0].folder(t), "deepseek_v4": codedFamilies[3].folder(t), "string": qwen, "parts": qwen, "qwen": qwen}
	models := map[string]*render.Model{}
	for name, folder := range folders {
		flags := render.Flags{MaxLen: 131072, StartDate: "2026-03-05", Transformers: "5.19.0"}
		if name == "string" || name == "parts" {
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
		for _, file := range []string{"agents.jsonl.gz", "shapes.jsonl.gz"} {
			for line := range golden.Lines(t, filepath.Join("testdata", file)) {
				v := struct {
					Model, Route, Version, Body string
					IDs                         json.RawMessage
				}{Route: "/v1/responses", Version: version}
				if err := json.Unmarshal(line, &v); err != nil {
					t.Fatal(err)
				}
				if v.Model == "" || v.Version != version { // the first line describes how the others were made
					continue
				}
				ids, err := servers[v.Model].Tokenize(v.Route, []byte(v.Body))
				var refusal *render.Refusal
				switch {
				case errors.As(err, &refusal):
					left++
				case err != nil || !slices.EqualFunc(ids, codedVector{IDs: v.IDs}.prompts(t), slices.Equal):
					t.Errorf("%s: other ids, %v: %s", v.Model, err, v.Body)
				default:
					equal[v.Model]++
				}
			}
		}
		if total := equal["string"] + equal["parts"] + equal["gpt_oss"] + equal["deepseek_v4"]; len(equal) < 4 || total < 180 || left*50 > total {
			t.Errorf("%s: %v equal, %d left", version, equal, left)
		}
		t.Logf("%s: %v equal, %d left to replicas", version, equal, left)
	}
}
