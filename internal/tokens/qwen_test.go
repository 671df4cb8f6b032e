package tokens

import (
	"path/filepath"
	"slices"
	"testing"

	"warmroute/render"
	"warmroute/render/chat"
	"warmroute/render/openai"
	"warmroute/render/testkit/chattest"
	"warmroute/render/work"
)

// qwen loads the model the captures were taken with; make setup fetches it.
func qwen(t *testing.T) Model {
	t.Helper()
	m, err := LoadFolder(filepath.Join("..", "..", ".cache", "models", "qwen3"), Flags{
		ResponsesToolFields: []string{"name", "parameters", "strict", "type", "allowed_callers", "async_", "defer_loading", "description", "output_schema"},
	})
	if err != nil {
		t.Fatalf("make setup fetches the model's files: %v", err)
	}
	return m
}

// TestGoldenIDs compares ids computed here with what vLLM answered.
func TestGoldenIDs(t *testing.T) {
	model := qwen(t)
	for version, transformers := range map[string]string{"0.21.0": "5.23.0", "0.32.0": "5.19.0"} {
		t.Run(version, func(t *testing.T) {
			v, err := chattest.Read("../../render/chat/testdata/qwen-" + version + ".json.gz")
			if err != nil {
				t.Fatal(err)
			}
			if v.Version != version || len(v.Vectors) < 300 {
				t.Fatalf("%d vectors of %s", len(v.Vectors), v.Version)
			}
			m := model
			m.MaxLen = 8000
			m.Chat.Version, m.Chat.Transformers = version, transformers
			compareIDs(t, m, v.Vectors)
		})
	}
}

// compareIDs requires every answered request's ids, and allows one in twenty to be
// left to a replica.
func compareIDs(t *testing.T, m Model, vectors []chattest.Vector) {
	t.Helper()
	r, err := chat.New(m.Chat)
	if err != nil {
		t.Fatal(err)
	}
	l, local := NewLocal(LocalOptions{}), newLocalModel("m", m)
	answered, refused := 0, 0
	for _, v := range vectors {
		route, _ := openai.RouteOf("POST", v.Path)
		req, err := openai.Parse(route, []byte(v.Body))
		if err != nil {
			t.Fatal(err)
		}
		if v.Status != 0 {
			continue
		}
		answered++
		if got, err := (Body{}).Tokens(t.Context(), req, someModel); err == nil {
			if at, ok := firstDifference(v.IDs, got.Prompts); !ok {
				t.Errorf("ids of the body differ at %d: %s", at, v.Body)
			}
			continue
		}
		ids, features, err := render.Job{Renderer: r, Encoder: local.Encoder, Work: new(work.Budget), Fits: local.fits}.Prompts(req, l.o.Now(), new([]uint32))
		if err != nil {
			refused++
			t.Logf("left to a replica (%v): %s", err, v.Body)
			continue
		}
		if !slices.EqualFunc(ids, v.IDs, slices.Equal) {
			prompts := make([]Prompt, len(v.IDs))
			for i := range prompts {
				prompts[i].Tokens = v.IDs[i]
			}
			at, _ := firstDifference(ids, prompts)
			t.Errorf("%s (%s) differs at token %d: %s", v.Path, features, at, v.Body)
		}
	}
	t.Logf("%d answered, %d left to a replica", answered, refused)
	if refused*20 > answered || answered == 0 {
		t.Errorf("%d of %d left to a replica", refused, answered)
	}
}
