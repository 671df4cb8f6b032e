package hashtable

import (
	"math/rand/v2"
	"testing"
)

// A table whose content is replaced block by block keeps its arrays: emptied
// rows are used again.
func TestEmptiedSlotsAreReused(t *testing.T) {
	mem := newMemory(t)
	tb := NewTable(&mem.clock, &mem.pool, 1)
	rng := rand.New(rand.NewPCG(1, 2))
	var held []uint64
	for range 20000 {
		k := rng.Uint64()
		tb.Set(tb.Insert(k), 1)
		held = append(held, k)
	}
	before := tb.builds
	for i := range 200000 {
		j := rng.IntN(len(held))
		tb.Set(tb.Find(held[j]), 0)
		if i%64 == 0 {
			mem.clock.Retire()
			tb.Settle(mem.clock.Oldest())
		}
		held[j] = rng.Uint64()
		tb.Set(tb.Insert(held[j]), 1)
	}
	if n := tb.builds - before; n > 200 {
		t.Errorf("%d arrays replaced while 200,000 of 20,000 blocks were, want at most 200 (253 without reuse)", n)
	}
	for _, k := range held {
		if tb.Get(k) != 1 {
			t.Fatal("a held key is lost")
		}
	}
	if tb.Len() != len(held) {
		t.Errorf("%d keys, want %d", tb.Len(), len(held))
	}
}
