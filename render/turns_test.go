package render_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"warmroute/render"
	"warmroute/render/testkit/chattest"
)

// spokenModels are the folders of a model of every dialect: templates, and dialects that
// vLLM renders in code.
func spokenModels(t *testing.T) map[string]string {
	folders := map[string]string{"mistral_v3_tekken": chattest.MistralFolder(t, 3, false), "mistral_v7_sentencepiece": chattest.MistralFolder(t, 7, true)}
	for _, name := range []string{"qwen3", "llama3_1", "gemma3", "deepseek_v3"} {
		folders[name] = filepath.Join("..", ".cache", "models", name)
	}
	for _, f := range codedFamilies {
		if !f.flags.SystemInstructions { // harmony once is enough
			folders[f.name] = f.folder(t)
		}
	}
	return folders
}

func spokenRequests(t *testing.T, folder string) *render.Server {
	t.Helper()
	return server(t, folder, render.Flags{Transformers: "5.19.0"}, "0.32.0", func() time.Time { return time.Unix(0, 0) })
}

// spoken is a random message of a role.
func spoken(r *rand.Rand, role string) map[string]any {
	words := []string{"word ", "line\n\tindented ", `"quoted" \ `, "é漢😀 ", "<|im_end|>", "</s>[INST]", "<think>", "\u0000", "\r\n\r\n", "1234567 "}
	var text strings.Builder
	for range 1 + r.IntN(60) {
		text.WriteString(words[r.IntN(len(words))])
		text.WriteString(words[r.IntN(3)])
	}
	m := map[string]any{"role": role, "content": text.String()}
	switch r.IntN(8) {
	case 0:
		m["content"] = []any{map[string]any{"type": "text", "text": text.String()}, map[string]any{"type": "text", "text": "b"}}
	case 1:
		if role == "assistant" {
			m["reasoning"] = "thought " + text.String()[:3]
		}
	case 2:
		if role == "assistant" {
			m["content"] = "x</think>" + text.String()
		}
	}
	return m
}

// The ids of a conversation's next turn, computed from the remembered turns before, equal
// the ids of the same body in a process that has seen no beginning of it. Messages also
// change, go and come back.
func TestNextTurnsEqualFirstTurns(t *testing.T) {
	for name, folder := range spokenModels(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			remembers, anew := spokenRequests(t, folder), spokenRequests(t, folder)
			r := rand.New(rand.NewPCG(14, uint64(len(name))))
			exact := 0
			for round := range 40 {
				var list []any
				asked := 1 + r.IntN(12) // the turn that the other process gets
				for turn := range asked {
					if turn > 2 && r.IntN(6) == 0 { // another way from an earlier turn on
						list = list[:1+2*r.IntN((len(list)+1)/2)]
					}
					if turn == 0 { // as no other conversation begins
						list = append(list, map[string]any{"role": "user", "content": fmt.Sprint("conversation ", round)})
					} else {
						list = append(list, spoken(r, "assistant"), spoken(r, "user"))
					}
					body, err := json.Marshal(map[string]any{"model": "m", "messages": list, "max_tokens": 7})
					if err != nil {
						t.Fatal(err)
					}
					got, gotErr := remembers.Tokenize("/v1/chat/completions", body)
					if turn < asked-1 {
						continue
					}
					want, wantErr := anew.Tokenize("/v1/chat/completions", body)
					if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
						t.Fatalf("error %v, anew %v\n%s", gotErr, wantErr, body)
					}
					if !slices.EqualFunc(got, want, slices.Equal) {
						t.Fatalf("other ids than anew\n%s", body)
					}
					if wantErr == nil {
						exact++
					}
				}
			}
			if exact < 20 {
				t.Errorf("only %d conversations have ids", exact)
			}
		})
	}
}
