package hashtable

import (
	"math/rand/v2"
	"testing"

	"warmroute/render/testkit/race"
)

// TestPairsAreAMap: any sequence of sets and removals leaves the same pairs as in a map,
// with keys that collide as much as they can.
func TestPairsAreAMap(t *testing.T) {
	type pair struct {
		key    uint64
		number int
	}
	ops := 40_000
	if race.Enabled { // one goroutine
		ops /= 10
	}
	pool := &newMemory(t).pool
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		want := map[pair]uint64{}
		var d Pairs
		d.Init(pool, rng.Uint64())
		size := 1 + rng.IntN(3000)
		for op := range ops {
			e := pair{rng.Uint64N(uint64(size)) << (seed % 60), rng.IntN(3)}
			growing := 4*op/ops%2 == 0
			if rng.IntN(4) == 0 == growing {
				value := want[e]
				delete(want, e)
				if was := d.Delete(e.key, e.number); was != value {
					t.Fatalf("seed %d, op %d: removing %v disagrees", seed, op, e)
				}
			} else {
				at := 1 + rng.Uint64N(1000)
				want[e] = at
				d.Set(e.key, e.number, at)
			}
			if got := d.Get(e.key, e.number); got != want[e] {
				t.Fatalf("seed %d, op %d: %v has %d, want %d", seed, op, e, got, want[e])
			}
		}
		if d.Len() != len(want) {
			t.Fatalf("seed %d: %d entries, want %d", seed, d.Len(), len(want))
		}
		for e, at := range want {
			if d.Get(e.key, e.number) != at {
				t.Fatalf("seed %d: lost %v", seed, e)
			}
			d.Delete(e.key, e.number)
		}
		if d.Trim(); d.Len() != 0 || len(d.m.entries) > leastMap {
			t.Errorf("seed %d: %d pairs in %d entries after all were removed", seed, d.Len(), len(d.m.entries))
		}
	}
}

// Two pairs whose combined keys are equal are two pairs.
func TestPairsThatCollideAreApart(t *testing.T) {
	var p Pairs
	p.Init(&newMemory(t).pool, 5)
	key := uint64(77)
	x := uint64(Golden)
	other := key ^ 3*x ^ 9*x
	if p.combined(key, 3) != p.combined(other, 9) {
		t.Fatal("the keys do not collide")
	}
	p.Set(key, 3, 1)
	p.Set(other, 9, 2)
	if p.Get(key, 3) != 1 || p.Get(other, 9) != 2 || p.Len() != 2 {
		t.Errorf("%d and %d of %d pairs, want 1 and 2 of 2", p.Get(key, 3), p.Get(other, 9), p.Len())
	}
	if was := p.Delete(key, 3); was != 1 || p.Get(other, 9) != 2 || p.Get(key, 3) != 0 {
		t.Errorf("%d was deleted, %d and %d are left", was, p.Get(key, 3), p.Get(other, 9))
	}
}
