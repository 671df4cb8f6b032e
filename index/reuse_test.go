package index

import (
	"math/rand/v2"
	"testing"
)

// A table whose content is replaced block by block keeps its arrays: emptied
// slots are used again.
func TestEmptiedSlotsAreReused(t *testing.T) {
	var e epochs
	e.init()
	tb := newTable(&e, 1)
	rng := rand.New(rand.NewPCG(1, 2))
	var held []uint64
	for range 20000 {
		k := rng.Uint64()
		s, _ := tb.insert(k)
		tb.set(s, 1)
		held = append(held, k)
	}
	before := tb.builds
	for i := range 200000 {
		j := rng.IntN(len(held))
		tb.set(tb.find(held[j]), 0)
		if i%64 == 0 {
			e.retire()
			tb.settle(e.oldest())
		}
		held[j] = rng.Uint64()
		s, _ := tb.insert(held[j])
		tb.set(s, 1)
	}
	if n := tb.builds - before; n > 200 {
		t.Errorf("%d arrays replaced while 200,000 of 20,000 blocks were, want at most 200 (253 without reuse)", n)
	}
	for _, k := range held {
		if tb.get(k)&valSet != 1 {
			t.Fatal("a held key is lost")
		}
	}
	if tb.count() != len(held) {
		t.Errorf("%d keys, want %d", tb.count(), len(held))
	}
}
