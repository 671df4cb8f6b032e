package hashtable

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"warmroute/render/testkit/race"
)

func TestABucketIsACacheLine(t *testing.T) {
	if n := unsafe.Sizeof(bucket{}); n != 64 {
		t.Errorf("%d bytes of a bucket, want 64", n)
	}
}

// indexWorld is an Index and a map of places.
type indexWorld struct {
	t    *testing.T
	rng  *rand.Rand
	x    Index
	m    map[uint64]uint64
	keys []uint64
}

func newIndexWorld(t *testing.T, seed uint64, keys []uint64) *indexWorld {
	w := &indexWorld{t: t, rng: rand.New(rand.NewPCG(seed, 1)), m: map[uint64]uint64{}, keys: keys}
	w.x.Init(&newMemory(t).pool)
	return w
}

func (w *indexWorld) find(key uint64) (at Position, place uint64) {
	at, place = w.x.Next(key, Position{})
	for place != 0 && w.keys[place-1] != key {
		at, place = w.x.Next(key, at)
	}
	return at, place
}

func (w *indexWorld) put(i int) {
	w.t.Helper()
	w.x.Reserve(1)
	if _, was := w.find(w.keys[i]); was != w.m[w.keys[i]] || was != 0 && w.x.Lacks(w.keys[i]) {
		w.t.Fatalf("key %x was at %x, want %x", w.keys[i], was, w.m[w.keys[i]])
	} else if was != 0 {
		return
	}
	w.x.Put(w.keys[i], uint64(i+1))
	w.m[w.keys[i]] = uint64(i + 1)
}

func (w *indexWorld) del(i int) {
	w.t.Helper()
	at, p := w.find(w.keys[i])
	if p != w.m[w.keys[i]] {
		w.t.Fatalf("key %x is at %x, want %x", w.keys[i], p, w.m[w.keys[i]])
	}
	if p != 0 {
		w.x.Delete(w.keys[i], at)
		delete(w.m, w.keys[i])
	}
}

func (w *indexWorld) same() {
	w.t.Helper()
	for i, key := range w.keys {
		if _, p := w.find(key); p != w.m[key] {
			w.t.Fatalf("key %d, %x, is at %x, want %x", i, key, p, w.m[key])
		}
	}
	all := map[uint64]bool{}
	w.x.Each(func(p uint64) { all[p] = true })
	if len(all) != len(w.m) || w.x.Len() != len(w.m) {
		w.t.Fatalf("%d entries, %d counted, want %d", len(all), w.x.Len(), len(w.m))
	}
	for _, p := range w.m {
		if !all[p] {
			w.t.Fatalf("no entry for %x", p)
		}
	}
}

func (w *indexWorld) run(steps int) {
	w.t.Helper()
	for i := range steps {
		if up := i/(len(w.keys)*2)%2 == 0; (w.rng.IntN(4) > 0) == up { // fills, then empties
			w.put(w.rng.IntN(len(w.keys)))
		} else {
			w.del(w.rng.IntN(len(w.keys)))
		}
		switch w.rng.IntN(400) {
		case 0:
			w.x.Trim()
		case 1:
			buckets := 1
			for buckets*bucketWidth <= w.x.Len() {
				buckets *= 2
			}
			w.x.resize(buckets << w.rng.IntN(3))
		case 2:
			w.same()
		}
	}
	w.same()
}

func TestIndexIsAMap(t *testing.T) {
	steps := 20_000
	if race.Enabled {
		steps /= 10
	}
	for kind, keys := range collidingKeys(400) {
		t.Run(kind, func(t *testing.T) {
			for seed := range uint64(4) {
				newIndexWorld(t, seed, keys).run(steps)
			}
		})
	}
}

// More keys of one home than a bucket can count pass it. Its count stays, and
// nothing is lost or found that is not there.
func TestIndexCountsSaturate(t *testing.T) {
	w := newIndexWorld(t, 1, collidingKeys(2000)["one home"])
	for i := range w.keys {
		w.put(i)
	}
	if b := w.x.buckets[w.x.buckets.home(7)]; b.tags>>56 != passedMost {
		t.Fatalf("%d passed, want the most there can be", b.tags>>56)
	}
	w.same()
	for i := range w.keys {
		w.del(i)
	}
	w.same()
	if b := w.x.buckets[w.x.buckets.home(7)]; b.tags>>56 != passedMost {
		t.Errorf("%d passed, want a count that stays", b.tags>>56)
	}
	w.run(5000)
}

// Keys that come and go can make every bucket's count stay. A search for an absent key
// ends all the same.
func TestIndexSearchEndsWhenAllCountsStay(t *testing.T) {
	const buckets, many = 128, 300
	keys := make([]uint64, 0, buckets*many)
	for home := range uint64(buckets) {
		for i := range uint64(many) {
			keys = append(keys, keyLike((home<<printBits+buckets-1)/buckets, i%128, i))
		}
	}
	w := newIndexWorld(t, 1, keys)
	w.x.resize(buckets)
	for from := 0; from < len(keys); from += many {
		for i := range many {
			w.put(from + i)
		}
		for i := range many {
			w.del(from + i)
		}
	}
	for i, b := range w.x.buckets {
		if b.tags>>56 != passedMost {
			t.Fatalf("%d passed bucket %d, want the most there can be", b.tags>>56, i)
		}
	}
	w.same()
	w.put(5)
	w.same()
}
