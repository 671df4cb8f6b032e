package index

import (
	"math/rand/v2"
	"testing"
)

// Places beside a map: keys that share buckets, come and go, and are looked up
// while arrays are replaced.
func TestPlacesAreAMap(t *testing.T) {
	for kind, keys := range collidingNames(1200) {
		w := newLaneWorld(t, 3, keys)
		p := places{epochs: w.s.epochs}
		held := map[uint64]pos{}
		rng := rand.New(rand.NewPCG(4, 4))
		for step := range 20_000 {
			i := rng.IntN(len(keys))
			key := w.s.at(w.at[i].stem()).key(w.at[i].off())
			if got := p.find(&w.s, key); got != held[key] {
				t.Fatalf("%s, step %d: key %x is at %x, want %x", kind, step, key, got, held[key])
			}
			if held[key] != 0 && p.likely(key) == 0 {
				t.Fatalf("%s, step %d: key %x is not likely there", kind, step, key)
			}
			switch {
			case rng.IntN(500) == 0:
				p.tidy()
			case held[key] == 0 && (rng.IntN(4) > 0) == (step/5000%2 == 0):
				p.put(key, w.at[i])
				held[key] = w.at[i]
			case held[key] != 0 && (rng.IntN(4) > 0) == (step/5000%2 == 1):
				p.del(key, w.at[i])
				delete(held, key)
			}
			if p.used != len(held) {
				t.Fatalf("%s, step %d: %d counted, want %d", kind, step, p.used, len(held))
			}
		}
		n := 0
		p.each(func(at pos) {
			n++
			if held[w.s.at(at.stem()).key(at.off())] != at {
				t.Errorf("%s: an entry leads to %x", kind, at)
			}
		})
		if n != len(held) {
			t.Errorf("%s: %d entries, want %d", kind, n, len(held))
		}
		p.discard()
	}
}

// Where no bucket's count says any more that nobody passed, a search for what is
// not there ends all the same.
func TestPlacesSearchEndsWhenAllCountsStay(t *testing.T) {
	var e epochs
	e.init()
	p := places{epochs: &e}
	p.put(1, posAt(1, 1))
	p.resize(16)
	for i := range p.array.Load().buckets {
		p.array.Load().buckets[i].tags |= passMost << 56
	}
	if got := p.likely(2); got != 0 {
		t.Errorf("an absent key is at %x", got)
	}
	p.del(2, posAt(1, 1))
	if p.used != 1 || p.likely(1) != posAt(1, 1) {
		t.Errorf("%d entries, the one is at %x", p.used, p.likely(1))
	}
	p.discard()
	e.drain()
}
