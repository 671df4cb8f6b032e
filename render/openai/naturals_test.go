package openai

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// TestIDsAreReadAsJSONReadsThem: lists of ids, valid and not, put together at
// random from pieces that matter.
func TestIDsAreReadAsJSONReadsThem(t *testing.T) {
	pieces := []string{"0", "1", "12", "151643", "999999999", "1000000000", "4294967295", "4294967296", "01", "1.0", "1e3", "-1", "", " 7", "7 ", "  7", "\t7", "null", "٣"}
	rng := rand.New(rand.NewPCG(3, 3))
	good := 0
	for range 20_000 {
		list := make([]string, 1+rng.IntN(9))
		for i := range list {
			list[i] = pieces[rng.IntN(len(pieces))]
			if rng.IntN(3) > 0 {
				list[i] = pieces[rng.IntN(6)]
			}
		}
		body := `{"model":"m","prompt":[` + strings.Join(list, ",") + `]}`
		var want struct{ Prompt []*uint32 }
		err := json.Unmarshal([]byte(body), &want)
		req, why := Parse(Completions, []byte(body))
		var ids []uint32
		for _, id := range want.Prompt {
			if id == nil { // JSON's null
				err = errorOf[BadPrompt]
				break
			}
			ids = append(ids, *id)
		}
		if good := err == nil && len(ids) > 0; good != (why == nil) {
			t.Fatalf("%s: %v, JSON says %v", body, why, err)
		}
		if why == nil {
			good++
			if !reflect.DeepEqual(req.TokenPrompts[0], ids) {
				t.Fatalf("%s: %v, JSON says %v", body, req.TokenPrompts[0], ids)
			}
		}
	}
	if good < 3000 {
		t.Errorf("only %d lists were good", good)
	}
}

func BenchmarkIDs(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	ids := make([]uint32, 37_000)
	for i := range ids {
		ids[i] = uint32(rng.IntN(151_643)) // of all lengths, so that nothing predicts the next
	}
	body, err := json.Marshal(map[string]any{"model": "m", "prompt": ids})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := Parse(Completions, body); err != nil {
			b.Fatal(err)
		}
	}
}
