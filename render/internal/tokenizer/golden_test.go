package tokenizer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/golden"
	"warmroute/render/testkit/race"
)

// models are the tokenizers fetched for tests.
var models = []string{"deepseek_v3", "gemma3", "gpt2", "llama2", "llama3_1", "qwen3"}

// rebuilt are the models whose tokenizer.json is put together from a vocabulary and
// merges: the file differs from the one the golden ids are of, no id may.
var rebuilt = []string{"gpt2"}

// someModels are all, or, under the race detector, which makes loading and
// encoding ten times slower, one of each kind.
func someModels() []string {
	if race.Enabled {
		return []string{"llama2", "qwen3"}
	}
	return models
}

func modelDir(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(checkout.Root(), ".cache", "models", name)
	if _, err := os.Stat(filepath.Join(dir, "tokenizer.json")); err != nil {
		t.Fatalf("the tokenizer %s is not there: run scripts/fetch-models.sh (make setup does)", name)
	}
	return dir
}

var loaded sync.Map

// model loads a fetched tokenizer once for all tests.
func model(t testing.TB, name string) *Tokenizer {
	t.Helper()
	once, _ := loaded.LoadOrStore(name, sync.OnceValues(func() (*Tokenizer, error) {
		return Load(modelDir(t, name), Options{})
	}))
	tok, err := once.(func() (*Tokenizer, error))()
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

type vectors struct {
	Tokenizer string
	SHA256    string     `json:"tokenizer_sha256"`
	IDs       [][]uint32 `json:"ids"`
	Big       map[string]struct {
		N      int
		SHA256 string
	}
	Special []uint32 `json:"encode_x_with_special"`
}

func readGolden(t *testing.T, name string) vectors {
	t.Helper()
	return readGoldenFile(t, "ids."+name)
}

func readGoldenFile(t *testing.T, name string) vectors {
	t.Helper()
	var g vectors
	golden.Read(t, filepath.Join("testdata", "golden", name+".json.gz"), &g)
	return g
}

func goldenStrings(t testing.TB) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "golden", "strings.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list []struct{ N, S string }
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 604 {
		t.Fatalf("%d golden strings, want 604", len(list))
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.S
	}
	return out
}

// Every id equals Python tokenizers', on every golden string.
func TestGolden(t *testing.T) {
	texts := goldenStrings(t)
	for _, name := range someModels() {
		t.Run(name, func(t *testing.T) {
			g := readGolden(t, name)
			raw, err := os.ReadFile(filepath.Join(modelDir(t, name), "tokenizer.json"))
			if err != nil {
				t.Fatal(err)
			}
			if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != g.SHA256 && !slices.Contains(rebuilt, name) {
				t.Fatalf("the fetched tokenizer is not the one the golden ids are of")
			}
			tok := model(t, name)
			if len(g.IDs) != len(texts) {
				t.Fatalf("%d golden id lists for %d strings", len(g.IDs), len(texts))
			}
			bad := 0
			for i, text := range texts {
				for range 2 { // the second time from the word cache
					if got := tok.Append(nil, nil, []byte(text), false); !slices.Equal(got, g.IDs[i]) {
						if bad++; bad <= 5 {
							t.Errorf("string %d %.80q:\n got %v\nwant %v", i, text, got, g.IDs[i])
						}
					}
				}
			}
			if got := tok.Append(nil, nil, []byte("x"), true); !slices.Equal(got, g.Special) {
				t.Errorf("x with special tokens: %v, want %v", got, g.Special)
			}
			bigDocuments(t, tok, g)
		})
	}
}

// bigDocuments checks the golden documents when their folder is given: they
// are other people's text and not kept here.
func bigDocuments(t *testing.T, tok *Tokenizer, g vectors) {
	dir := os.Getenv("WARMROUTE_GOLDEN_DOCUMENTS")
	if dir == "" {
		return
	}
	if len(g.Big) != 11 {
		t.Fatalf("%d golden documents, want 11", len(g.Big))
	}
	for name, want := range g.Big {
		text, err := os.ReadFile(filepath.Join(dir, name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		ids := tok.Append(nil, nil, text, false)
		raw := make([]byte, 0, 4*len(ids))
		for _, id := range ids {
			raw = binary.LittleEndian.AppendUint32(raw, id)
		}
		if sum := sha256.Sum256(raw); len(ids) != want.N || hex.EncodeToString(sum[:]) != want.SHA256 {
			t.Errorf("document %s: %d ids, want %d, or others", name, len(ids), want.N)
		}
	}
}
