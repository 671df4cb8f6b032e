package chat

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warmroute/render/internal/tokenizer"
	"warmroute/render/openai"
	"warmroute/render/testkit/golden"
)

// pieces are a vocabulary's pieces of text, by their ids.
type pieces map[uint32]string

func readModel(t *testing.T, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", ".cache", "models", file))
	if err != nil {
		t.Fatalf("make setup fetches the model's files: %v", err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// bytePieces reads a tokenizer.json whose pieces are written in the 256 letters
// that stand for bytes.
func bytePieces(t *testing.T, file string) pieces {
	t.Helper()
	var f struct {
		Model struct{ Vocab map[string]uint32 }
		Added []struct {
			ID      uint32
			Content string
		} `json:"added_tokens"`
	}
	readModel(t, file, &f)
	letters, next := map[rune]byte{}, rune(256)
	for b := range 256 {
		switch {
		case b >= '!' && b <= '~', b >= 0xa1 && b <= 0xac, b >= 0xae:
			letters[rune(b)] = byte(b)
		default:
			letters[next] = byte(b)
			next++
		}
	}
	all := pieces{}
	for piece, id := range f.Model.Vocab {
		var text []byte
		for _, r := range piece {
			text = append(text, letters[r])
		}
		all[id] = string(text)
	}
	for _, a := range f.Added {
		all[a.ID] = a.Content
	}
	return all
}

// tekkenPieces reads a tekken.json: its control tokens come before the others.
func tekkenPieces(t *testing.T, file string, control map[uint32]string) pieces {
	t.Helper()
	const before = 1000
	var f struct {
		Vocab []struct {
			Rank  uint32
			Bytes []byte `json:"token_bytes"`
		}
	}
	readModel(t, file, &f)
	all := pieces{}
	for _, v := range f.Vocab {
		all[v.Rank+before] = string(v.Bytes)
	}
	for id, name := range control {
		all[id] = name
	}
	return all
}

func (p pieces) text(ids []uint32) string {
	var out strings.Builder
	for _, id := range ids {
		out.WriteString(p[id])
	}
	return out.String()
}

// TestCodedTexts compares the text of every chat that vLLM renders in code with the text
// that vLLM's ids spell; the tests of package tokens, whose vectors these are, compare
// the ids.
func TestCodedTexts(t *testing.T) {
	harmony, deepseek := bytePieces(t, "gptoss/tokenizer.json"), bytePieces(t, "deepseek_v4/tokenizer.json")
	control := map[uint32]string{0: "<unk>", 1: "<s>", 2: "</s>", 3: "[INST]", 4: "[/INST]", 5: "[AVAILABLE_TOOLS]", 6: "[/AVAILABLE_TOOLS]",
		7: "[TOOL_RESULTS]", 8: "[/TOOL_RESULTS]", 9: "[TOOL_CALLS]", 17: "[SYSTEM_PROMPT]", 18: "[/SYSTEM_PROMPT]", 19: "[TOOL_CONTENT]",
		32: "[ARGS]", 33: "[CALL_ID]", 34: "[THINK]", 35: "[/THINK]", 36: "[MODEL_SETTINGS]", 37: "[/MODEL_SETTINGS]"}
	tekken := tekkenPieces(t, "mistral/tekken_240911.json", control)
	mistral := func(version int, m tokenizer.Mistral) Options {
		m.Version = version
		return Options{Model: Model{TokenizerMode: "mistral", MistralFormat: true, Mistral: m}}
	}
	for _, f := range []struct {
		name   string
		o      Options
		pieces pieces
		now    string
	}{
		{"gpt_oss", Options{Model: Model{Type: "gpt_oss"}}, harmony, "2026-03-05"},
		{"gpt_oss_sysinstr", Options{Model: Model{Type: "gpt_oss"}, SystemInstructions: true, StartDate: "2025-12-31"}, harmony, "2026-01-01"},
		{"deepseek_v32", Options{Model: Model{Type: "deepseek_v32"}}, deepseek, "2026-01-01"},
		{"deepseek_v4", Options{Model: Model{Type: "deepseek_v4"}}, deepseek, "2026-01-01"},
		{"deepseek_v41", Options{Model: Model{Type: "deepseek_v41"}}, deepseek, "2026-01-01"},
		{"mistral_tekken_v7", mistral(7, tokenizer.Mistral{}), tekken, "2026-01-01"},
		{"mistral_tekken_v11", mistral(11, tokenizer.Mistral{}), tekken, "2026-01-01"},
		{"mistral_tekken_v13", mistral(13, tokenizer.Mistral{}), tekken, "2026-01-01"},
		{"mistral_tekken_v15", mistral(15, tokenizer.Mistral{Settings: true, Efforts: []string{"none", "high"}, Effort: "none"}), tekken, "2026-01-01"},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			now, err := time.Parse(time.DateOnly, f.now)
			if err != nil {
				t.Fatal(err)
			}
			f.o.Version = "0.32.0"
			r, compared, wrong := newRenderer(t, f.o), 0, 0
			codedVectors(t, f.name, func(path string, body []byte, ids []uint32, failed string) {
				req, err := openai.Parse(routeOf(t, path), body)
				if err != nil || req.TextPrompts != nil || req.TokenPrompts != nil || wrong > 5 {
					return
				}
				out, err := r.Render(nil, nil, req, now)
				var not *NotInProcess
				switch want := f.pieces.text(ids); {
				case errors.As(err, &not) && not.Why != Rejected:
					t.Errorf("refused: %v\n%s", err, body)
				case (err != nil) != (failed != ""):
					wrong++
					t.Errorf("error %v where vLLM has %q\n%s", err, failed, body)
				case err == nil && string(out.Text) != want:
					wrong++
					t.Errorf("%s\n got %q\nwant %q", body, out.Text, want)
				default:
					compared++
				}
			})
			if compared < 100 {
				t.Errorf("only %d chats compared", compared)
			}
		})
	}
}

func routeOf(t *testing.T, path string) openai.Route {
	t.Helper()
	route, ok := openai.RouteOf("POST", path)
	if !ok {
		t.Fatal(path)
	}
	return route
}

// codedVectors reads a file of vectors; the first line states how they were made.
func codedVectors(t *testing.T, name string, take func(path string, body []byte, ids []uint32, failed string)) {
	t.Helper()
	for line := range golden.Lines(t, filepath.Join("..", "..", "testdata", name+".jsonl.gz")) {
		var v struct {
			Route   string
			Request json.RawMessage
			IDs     json.RawMessage
			Error   string
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		var ids []uint32
		if v.Route == "" || v.IDs != nil && json.Unmarshal(v.IDs, &ids) != nil { // several prompts: not a chat
			continue
		}
		take(v.Route, v.Request, ids, v.Error)
	}
}

// TestObjectsAreNoTextInHarmony: an object as a tool's result, or as the content of the first
// system message, renders empty; elsewhere vLLM answers 400 (0.32, 0.33).
func TestObjectsAreNoTextInHarmony(t *testing.T) {
	o := Options{Model: Model{Type: "gpt_oss"}, Version: "0.32.0"}
	call := `{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	for object, empty := range map[string]string{
		`"messages":[` + call + `,{"role":"tool","tool_call_id":"c","content":{"a":1}}]`:                    `"messages":[` + call + `,{"role":"tool","tool_call_id":"c","content":""}]`,
		`"messages":[` + call + `,{"role":"tool","tool_call_id":"c","content":{"type":"text","text":"x"}}]`: `"messages":[` + call + `,{"role":"tool","tool_call_id":"c","content":[]}]`,
		`"messages":[{"role":"system","content":{"a":1}},{"role":"user","content":"q"}]`:                    `"messages":[{"role":"user","content":"q"}]`,
		`"messages":[{"role":"developer","content":{"text":"x"}},{"role":"user","content":"q"}]`:            `"messages":[{"role":"user","content":"q"}]`,
	} {
		if got, want := render(t, o, openai.Chat, object), render(t, o, openai.Chat, empty); got != want {
			t.Errorf("%s: %q, want %q", object, got, want)
		}
	}
	// vLLM's own class of messages refuses these, so the first one's parts are not read.
	for _, body := range []string{`"messages":[{"role":"system","content":[{"type":"text","text":"x","prompt_cache_breakpoint":true}]}]`,
		`"messages":[{"role":"system","task":[],"content":[{"type":"text","text":"x"}]}]`} {
		if _, err := newRenderer(t, o).Render(nil, nil, parse(t, openai.Chat, body), time.Unix(0, 0)); whyOf(err) != UnknownShape {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{`"messages":[{"role":"user","content":{"a":1}}]`, `"messages":[{"role":"user","content":"q"},{"role":"system","content":{"a":1}}]`,
		`"messages":[` + call + `,{"role":"tool","tool_call_id":"c","content":5}]`} {
		if _, err := newRenderer(t, o).Render(nil, nil, parse(t, openai.Chat, body), time.Unix(0, 0)); whyOf(err) != Rejected {
			t.Errorf("%s: %v", body, err)
		}
	}
}
