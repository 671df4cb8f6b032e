package render_test

import (
	"path/filepath"
	"slices"
	"testing"

	"warmroute/render"
	"warmroute/render/testkit/chattest"
)

// qwen is the folder of the model that the captures were taken with; make setup fetches it.
var qwen = filepath.Join("..", ".cache", "models", "qwen3")

// qwenFlags are those of the captures' servers.
func qwenFlags(transformers string, maxLen int) render.Flags {
	return render.Flags{Transformers: transformers, MaxLen: maxLen,
		ResponsesToolFields: []string{"name", "parameters", "strict", "type", "allowed_callers", "async_", "defer_loading", "description", "output_schema"}}
}

// TestGoldenIDs compares ids computed here with vLLM's answers.
func TestGoldenIDs(t *testing.T) {
	for version, transformers := range map[string]string{"0.21.0": "5.23.0", "0.32.0": "5.19.0"} {
		t.Run(version, func(t *testing.T) {
			v, err := chattest.Read("internal/chat/testdata/qwen-" + version + ".json.gz")
			if err != nil {
				t.Fatal(err)
			}
			if v.Version != version || len(v.Vectors) < 300 {
				t.Fatalf("%d vectors of %s", len(v.Vectors), v.Version)
			}
			compareIDs(t, server(t, qwen, qwenFlags(transformers, 8000), version, nil), v.Vectors)
		})
	}
}

// compareIDs requires every answered request's ids, and allows one in twenty to be
// left to a replica.
func compareIDs(t *testing.T, s *render.Server, vectors []chattest.Vector) {
	t.Helper()
	answered, refused := 0, 0
	for _, v := range vectors {
		if v.Status != 0 {
			continue
		}
		answered++
		ids, err := s.Tokenize(v.Path, []byte(v.Body))
		if err != nil {
			refused++
			t.Logf("left to a replica (%v): %s", err, v.Body)
			continue
		}
		if !slices.EqualFunc(ids, v.IDs, slices.Equal) {
			t.Errorf("%s: other ids: %s", v.Path, v.Body)
		}
	}
	t.Logf("%d answered, %d left to a replica", answered, refused)
	if refused*20 > answered || answered == 0 {
		t.Errorf("%d of %d left to a replica", refused, answered)
	}
}
