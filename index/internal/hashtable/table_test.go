package hashtable

import (
	"math/rand/v2"
	"testing"
)

// TestEmptiedRowsGo: a table whose content is replaced block by block at most doubles,
// and keeps what it holds.
func TestEmptiedRowsGo(t *testing.T) {
	mem := newMemory(t)
	tb := NewTable(&mem.pool, 1)
	rng := rand.New(rand.NewPCG(1, 2))
	var held []uint64
	for range 20000 {
		k := rng.Uint64()
		tb.Set(tb.Insert(k), 1)
		held = append(held, k)
	}
	builds, size := tb.builds, tb.Bytes()
	for range 200000 {
		j := rng.IntN(len(held))
		tb.Set(tb.Find(held[j]), 0)
		held[j] = rng.Uint64()
		tb.Set(tb.Insert(held[j]), 1)
	}
	if n := tb.builds - builds; n > 300 {
		t.Errorf("%d arrays replaced while 200,000 of 20,000 blocks were, want at most 300", n)
	}
	if n := tb.Bytes(); n > 2*size {
		t.Errorf("%d bytes for 20,000 blocks, %d before any was replaced", n, size)
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
