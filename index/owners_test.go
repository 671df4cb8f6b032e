package index

import (
	"math/rand/v2"
	"testing"
)

// TestOwnersAgainstAMap: any sequence of sets and removals leaves what a map
// holds, with keys that collide as much as they can.
func TestOwnersAgainstAMap(t *testing.T) {
	type entry struct {
		key  uint64
		seat int32
	}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		d, want := newOwners(rng.Uint64()), map[entry]int64{}
		size := 1 + rng.IntN(3000)
		for op := range 40_000 {
			e := entry{rng.Uint64N(uint64(size)) << (seed % 60), int32(rng.IntN(3))}
			growing := op/10_000%2 == 0
			if rng.IntN(4) == 0 == growing {
				_, there := want[e]
				delete(want, e)
				if d.remove(e.key, e.seat) != there {
					t.Fatalf("seed %d, op %d: removing %v disagrees", seed, op, e)
				}
			} else {
				at := 1 + rng.Int64N(1000)
				want[e] = at
				d.set(e.key, e.seat, at)
			}
			if got := d.get(e.key, e.seat); got != want[e] {
				t.Fatalf("seed %d, op %d: %v has %d, want %d", seed, op, e, got, want[e])
			}
		}
		if d.n != len(want) {
			t.Fatalf("seed %d: %d entries, want %d", seed, d.n, len(want))
		}
		for e, at := range want {
			if d.get(e.key, e.seat) != at {
				t.Fatalf("seed %d: lost %v", seed, e)
			}
			d.remove(e.key, e.seat)
		}
		for range 64 * len(d.slots) { // a quiet time shrinks it
			d.set(1, 0, 1)
			d.remove(1, 0)
		}
		if d.n != 0 || len(d.slots) > ownersLeast {
			t.Errorf("seed %d: %d entries in %d slots after all were removed", seed, d.n, len(d.slots))
		}
	}
}
