package filter

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/tokens"
	"warmroute/prefixhash"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
	"warmroute/render/work"
)

// longPrompt is a prompt of several pieces and a rest, with extra keys in every block.
func longPrompt(t *testing.T, n int) (p tokenPrompts, ids []uint32) {
	t.Helper()
	salt := "blue"
	ids = make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	mv, _ := newBench(t, nil, replica(1)).decider.Find("m", "")
	p.set(mv, &openai.Request{CacheSalt: &salt}, []tokens.Prompt{{Tokens: ids, MM: []prefixhash.MM{{ID: "image", Offset: pieceTokens - 5, Length: 10}}}}, n)
	return p, ids
}

// TestPiecesAreTheWhole: keys that are hashed piece by piece equal the keys of the
// prompt.
func TestPiecesAreTheWhole(t *testing.T) {
	p, ids := longPrompt(t, 3*pieceTokens+100)
	for _, unit := range []int{1, 16, 100, pieceTokens, pieceTokens + 7} {
		n := (len(ids) - 1) / unit
		p.fold(&p.prompts[0], n, unit, 0)
		want := prefixhash.AppendTokens(nil, p.root, ids[:n*unit], prefixhash.Blocks{Size: unit}, slices.Clone(p.extras))
		if got := p.AppendKeys(nil, &index.Scope{BlockSize: unit}, 0); !slices.Equal(got, want) {
			t.Errorf("blocks of %d: %d keys, want %d equal ones", unit, len(got), len(want))
		}
		p.fold(&p.prompts[0], len(ids)/unit, unit, 3)
		want = prefixhash.AppendTokens(nil, p.root, ids, prefixhash.Blocks{Size: unit, Ahead: 3}, slices.Clone(p.extras))
		if got := p.AppendChain(nil, index.Keying{Unit: unit, Ahead: 3}, 0); !slices.Equal(got, want) {
			t.Errorf("units of %d, 3 ahead: %d keys, want %d equal ones", unit, len(got), len(want))
		}
		hash := must.Get(prefixhash.NewVLLM(prefixhash.VLLMOptions{Algorithm: prefixhash.SHA256CBOR, Generation: prefixhash.Tagged}))(t)
		root, _ := hash.Root()
		mix := p.mix
		mix.MM = p.prompts[0].MM
		want = nil
		for _, d := range hash.AppendDigests(nil, prefixhash.Position{Parent: root}, ids, unit, mix) {
			want = append(want, d.Key())
		}
		if got := p.AppendChain(nil, index.Keying{Unit: unit, Hash: hash}, 0); !slices.Equal(got, want) {
			t.Errorf("vLLM's hashes of %d: %d keys, want %d equal ones", unit, len(got), len(want))
		}
	}
}

// TestHashingEnds: a request that has ended is hashed no further than a piece.
func TestHashingEnds(t *testing.T) {
	p, _ := longPrompt(t, 100*pieceTokens)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.budget = work.New(ctx, work.Limits{}, 0)
	keys := p.AppendKeys(nil, &index.Scope{BlockSize: 16}, 0)
	if most := 2 * pieceTokens / 16; len(keys) > most || !p.stopped {
		t.Errorf("%d keys, want at most %d; stopped: %v", len(keys), most, p.stopped)
	}
}

// TestHashingHasABudget: a request whose budget ends while it is hashed gets no hint, and
// charges no replica.
func TestHashingHasABudget(t *testing.T) {
	b := newBench(t, fakeTokens{n: 40 * pieceTokens}, replica(1))
	b.router.SetBudget(1) // a nanosecond: hashing begins too late
	d := b.router.Route(t.Context(), &Query{Route: openai.Chat, Body: []byte(chat)})
	if d.Reason != decision.ReasonBudget || d.Reservation != nil {
		t.Errorf("reason %q, reservation %v", d.Reason, d.Reservation)
	}
}

// TestLongRequestsTakeTurns: a request that is long to parse, or to hash, waits for its turn
// while other long work has it; a short one does not.
func TestLongRequestsTakeTurns(t *testing.T) {
	for name, tt := range map[string]struct {
		words, tokens int
		waits         bool
	}{
		"short":         {1, 100, false},
		"long to parse": {1_000_000, 100, true},
		"long to hash":  {1, 40 * pieceTokens, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, fakeTokens{n: tt.tokens}, replica(1))
			b.router.o.Turns = work.NewTurns(1)
			other := work.New(t.Context(), work.Limits{}, 0)
			other.InTurns(b.router.o.Turns)
			for range 100 {
				other.Pause() // until it has the turn
			}
			body := []byte(strings.Replace(chat, "hi", strings.Repeat("word\\n", tt.words), 1))
			var d *decision.Decision
			go func() {
				got := b.router.Route(t.Context(), &Query{Route: openai.Chat, Body: body})
				d = &got
			}()
			synctest.Wait()
			if waits := d == nil; waits != tt.waits {
				t.Errorf("%s: waits for its turn: %v", name, waits)
			}
			other.End()
			if synctest.Wait(); d == nil || d.Chosen == "" {
				t.Errorf("%s: once the turn is free: %+v", name, d)
			}
		})
	}
}
