package tokens

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"warmroute/internal/chat"
	"warmroute/internal/chat/chattest"
	"warmroute/internal/openai"
	"warmroute/internal/tokenizer"
)

// qwen loads the tokenizer and template the captures were taken with, fetched
// by `make setup`.
func qwen(t *testing.T) Model {
	t.Helper()
	dir := filepath.Join("..", "..", ".cache", "models", "qwen3")
	raw, err := os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		t.Fatalf("the model's files are not there (make setup fetches them): %v", err)
	}
	var config struct {
		Template string `json:"chat_template"`
		EOS      string `json:"eos_token"`
		Pad      string `json:"pad_token"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(dir, tokenizer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return Model{Encoder: tok, Chat: chat.Options{
		Template: config.Template, SpecialTokens: map[string]string{"eos_token": config.EOS, "pad_token": config.Pad},
		ResponsesToolFields: []string{"name", "parameters", "strict", "type", "allowed_callers", "async_", "defer_loading", "description", "output_schema"},
	}}
}

// TestGoldenIDs compares ids computed here with what vLLM answered.
func TestGoldenIDs(t *testing.T) {
	model := qwen(t)
	for version, transformers := range map[string]string{"0.21.0": "5.23.0", "0.32.0": "5.19.0"} {
		t.Run(version, func(t *testing.T) {
			v, err := chattest.Read("../chat/testdata/qwen-" + version + ".json.gz")
			if err != nil {
				t.Fatal(err)
			}
			if v.Version != version || len(v.Vectors) < 300 {
				t.Fatalf("%d vectors of %s", len(v.Vectors), v.Version)
			}
			m := model
			m.Chat.Version, m.Chat.Transformers = version, transformers
			compareIDs(t, m, v.Vectors)
		})
	}
}

// compareIDs wants every answered request's ids, and allows one in twenty to be
// left to a replica.
func compareIDs(t *testing.T, m Model, vectors []chattest.Vector) {
	t.Helper()
	r, err := chat.New(m.Chat)
	if err != nil {
		t.Fatal(err)
	}
	l, local := NewLocal(LocalOptions{}), &localModel{Model: m}
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
		if got, err := (Body{}).Tokens(t.Context(), req, "m"); err == nil {
			if at, ok := firstDifference(v.IDs, got.Prompts); !ok {
				t.Errorf("ids of the body differ at %d: %s", at, v.Body)
			}
			continue
		}
		ids, features, err := l.compute(local, r, req)
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
