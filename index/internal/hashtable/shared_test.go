package hashtable

import (
	"math/rand/v2"
	"testing"

	"warmroute/render/testkit/race"
)

// A SharedIndex compared with a map: keys that share buckets, come and go, and are looked
// up while arrays are replaced.
func TestSharedIndexIsAMap(t *testing.T) {
	steps := 20_000
	if race.Enabled { // one goroutine
		steps /= 10
	}
	for kind, keys := range collidingKeys(1200) {
		var x SharedIndex
		x.Init(&newMemory(t).pool, 0)
		find := func(key uint64) uint64 {
			at, place := x.View().Next(key, Position{})
			for place != 0 && keys[place-1] != key {
				at, place = x.View().Next(key, at)
			}
			return place
		}
		held := map[uint64]uint64{}
		rng := rand.New(rand.NewPCG(4, 4))
		for step := range steps {
			i := rng.IntN(len(keys))
			key, place := keys[i], uint64(i+1)
			if got := find(key); got != held[key] {
				t.Fatalf("%s, step %d: key %x is at %x, want %x", kind, step, key, got, held[key])
			}
			switch {
			case rng.IntN(500) == 0:
				x.Trim()
			case held[key] == 0 && (rng.IntN(4) > 0) == (4*step/steps%2 == 0):
				x.Put(key, place)
				held[key] = place
			case held[key] != 0 && (rng.IntN(4) > 0) == (4*step/steps%2 == 1):
				x.Delete(key, place)
				delete(held, key)
			}
			if x.Len() != len(held) {
				t.Fatalf("%s, step %d: %d counted, want %d", kind, step, x.Len(), len(held))
			}
		}
		n := 0
		x.Each(func(place uint64) {
			n++
			if held[keys[place-1]] != place {
				t.Errorf("%s: an entry leads to %x", kind, place)
			}
		})
		if n != len(held) {
			t.Errorf("%s: %d entries, want %d", kind, n, len(held))
		}
		x.Discard()
	}
}

// When every bucket's count says that a key has passed, a search for an absent key ends
// all the same.
func TestSharedSearchEndsWhenAllCountsStay(t *testing.T) {
	var x SharedIndex
	x.Init(&newMemory(t).pool, 0)
	x.Put(1, 9)
	x.resize(16)
	for i := range x.View().buckets {
		x.View().buckets[i].tags |= passedMost << 56
	}
	if _, got := x.View().Next(2, Position{}); got != 0 {
		t.Errorf("an absent key is at %x", got)
	}
	x.Delete(2, 9)
	if _, got := x.View().Next(1, Position{}); x.Len() != 1 || got != 9 {
		t.Errorf("%d entries, the one is at %x", x.Len(), got)
	}
}

// Each calls f for every entry's place.
func (x *SharedIndex) Each(f func(place uint64)) {
	x.View().buckets.each(func(_, place uint64) { f(place) })
}
