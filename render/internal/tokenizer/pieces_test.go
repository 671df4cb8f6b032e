package tokenizer

import (
	"math/rand/v2"
	"slices"
	"testing"

	"warmroute/render/work"
)

// conversationOfPieces appends turns to a text in pieces.
func conversationOfPieces(r *rand.Rand, text []byte, pieces []Piece, turns int) ([]byte, []Piece) {
	add := func(s string, token bool) {
		text = append(text, s...)
		pieces = append(pieces, Piece{End: len(text), Token: token})
	}
	words := []string{"router ", "<|im_end|>", " é", "\n\n", "cache", "北京", "def f(x):", "  "}
	for range turns {
		add("<|im_start|>", true)
		add("user", false)
		for range 1 + r.IntN(3) {
			s := ""
			for range 1 + r.IntN(200) {
				s += words[r.IntN(len(words))]
			}
			add(s, false)
		}
		add("<|im_end|>", true)
	}
	return text, pieces
}

// TestPieces: each piece is encoded by itself, names of tokens in ordinary pieces
// are text, and a store gives the same ids with any content.
func TestPieces(t *testing.T) {
	tok := model(t, "qwen3")
	store, err := NewStore(tok, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	var text []byte
	var pieces []Piece
	for range 30 {
		text, pieces = conversationOfPieces(r, text, pieces, 2)
		var want []uint32
		from := 0
		for _, p := range pieces {
			part := text[from:p.End]
			from = p.End
			if p.Token {
				id, ok := tok.TokenID(string(part))
				if !ok {
					t.Fatal("no such token")
				}
				want = append(want, id)
				continue
			}
			want, _ = tok.AppendPieces(nil, want, part, []Piece{{End: len(part)}})
		}
		for _, appendPieces := range []func(*work.Budget, []uint32, []byte, []Piece) ([]uint32, bool){tok.AppendPieces, store.AppendPieces, store.AppendPieces} {
			got, known := appendPieces(nil, []uint32{7}, text, pieces)
			if !known || !slices.Equal(got[1:], want) || got[0] != 7 {
				t.Fatalf("%d pieces: other ids", len(pieces))
			}
		}
		// The same bytes in other pieces are another text.
		other := slices.Delete(slices.Clone(pieces), 2, 3)
		a, _ := tok.AppendPieces(nil, nil, text, other)
		if b, _ := store.AppendPieces(nil, nil, text, other); !slices.Equal(a, b) {
			t.Fatal("pieces are told apart by their text alone")
		}
	}
	if s := store.Stats(); s.Entries == 0 || s.Bytes > 1<<20 {
		t.Errorf("%+v", s)
	}
	if _, known := store.AppendPieces(nil, nil, []byte("<|none|>"), []Piece{{End: 8, Token: true}}); known {
		t.Error("a token that is not in the vocabulary")
	}
	ids, _ := tok.AppendPieces(nil, nil, []byte("<|im_end|>"), []Piece{{End: 10}})
	if len(ids) < 2 {
		t.Error("a token was found in ordinary text")
	}
}
