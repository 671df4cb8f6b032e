package hashtable

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"warmroute/render/testkit/race"
)

// TestReadersSeeNoOtherKeysValue: keys come and go in few rows, whose arrays are replaced
// all the time; a lookup of a key reads that key's own value, or none.
func TestReadersSeeNoOtherKeysValue(t *testing.T) {
	mem := newMemory(t)
	tb := NewTable(&mem.pool, 1)
	const held = 16
	steps := int64(600_000)
	if race.Enabled {
		steps /= 20
	}
	key := func(n int64) uint64 { return uint64(n+1) * Golden }
	var now atomic.Int64
	var over atomic.Bool
	var readers sync.WaitGroup
	for r := range 2 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(r)))
			for !over.Load() {
				e := mem.clock.Enter()
				first := now.Load() - held - 4 // about to be given away
				for range 16 {
					n := max(0, first+rng.Int64N(8))
					if set := tb.Get(key(n)); set != 0 && set != uint32(n+1) {
						t.Errorf("key %d has the value of key %d", n, set-1)
						over.Store(true)
					}
				}
				e.Leave()
			}
		})
	}
	for n := int64(0); n < steps && !over.Load(); n++ {
		tb.Set(tb.Insert(key(n)), uint32(n+1))
		if n >= held {
			tb.Set(tb.Find(key(n-held)), 0)
		}
		now.Store(n)
	}
	over.Store(true)
	readers.Wait()
	if tb.Len() != held && !t.Failed() {
		t.Errorf("%d keys, want %d", tb.Len(), held)
	}
}
