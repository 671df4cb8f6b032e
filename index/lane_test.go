package index

import (
	"math/rand/v2"
	"testing"
)

// ungolden is golden's inverse modulo 2^64: the name of a hash that is chosen.
const ungolden = 0xf1de83e19937733d

// nameLike is a name with a fingerprint, a tag and the bits no lane keeps.
func nameLike(print, tag, rest uint64) uint64 {
	return (print<<posBits | tag<<(posBits-7) | rest) * ungolden
}

func TestNamesCanBeChosen(t *testing.T) {
	n := nameOf(nameLike(0x123456, 0x2a, 77))
	if n.print != 0x123456 || n.tag != 0x2a|0x80 {
		t.Fatalf("%x and %x, want what was chosen", n.print, n.tag)
	}
}

// laneWorld is a lane beside a map, and stems that know the names.
type laneWorld struct {
	t     *testing.T
	rng   *rand.Rand
	s     stems
	l     lane
	m     map[uint64]pos
	names []uint64
	at    []pos
}

func newLaneWorld(t *testing.T, seed uint64, names []uint64) *laneWorld {
	var e epochs
	e.init()
	w := &laneWorld{t: t, rng: rand.New(rand.NewPCG(seed, 1)), m: map[uint64]pos{}, names: names}
	w.s.init(&e)
	d := &domain{}
	d.stems.init(&e)
	w.l.pool = &e.pool
	for from := 0; from < len(names); from += 1000 {
		part := names[from:min(from+1000, len(names))]
		id, st, _ := w.s.take()
		keys := make([]uint64, len(part))
		for i := range part {
			keys[i] = part[i] + 1
			w.at = append(w.at, posAt(id, i))
		}
		d.reserve(st, keys, part)
		st.state.Store(stateOf(len(part), 1))
	}
	t.Cleanup(func() {
		w.l.discard()
		e.pool.discard()
	})
	return w
}

func (w *laneWorld) put(i int) {
	w.t.Helper()
	w.l.room(1)
	if was := w.l.put(&w.s, w.names[i], w.at[i]); was != w.m[w.names[i]] {
		w.t.Fatalf("name %x was at %x, want %x", w.names[i], was, w.m[w.names[i]])
	}
	w.m[w.names[i]] = w.at[i]
}

func (w *laneWorld) del(i int) {
	w.t.Helper()
	at, p := w.l.find(&w.s, w.names[i])
	if p != w.m[w.names[i]] {
		w.t.Fatalf("name %x is at %x, want %x", w.names[i], p, w.m[w.names[i]])
	}
	if p != 0 {
		w.l.del(at)
		delete(w.m, w.names[i])
	}
}

func (w *laneWorld) same() {
	w.t.Helper()
	for i, name := range w.names {
		if _, p := w.l.find(&w.s, name); p != w.m[name] {
			w.t.Fatalf("name %d, %x, is at %x, want %x", i, name, p, w.m[name])
		}
	}
	all := map[pos]bool{}
	eachPos(w.l.buckets, func(p pos) { all[p] = true })
	if len(all) != len(w.m) || w.l.used != len(w.m) {
		w.t.Fatalf("%d entries, %d counted, want %d", len(all), w.l.used, len(w.m))
	}
	for _, p := range w.m {
		if !all[p] {
			w.t.Fatalf("no entry for %x", p)
		}
	}
}

func (w *laneWorld) run(steps int) {
	w.t.Helper()
	for i := range steps {
		if up := i/(len(w.names)*2)%2 == 0; (w.rng.IntN(4) > 0) == up { // fills, then empties
			w.put(w.rng.IntN(len(w.names)))
		} else {
			w.del(w.rng.IntN(len(w.names)))
		}
		switch w.rng.IntN(400) {
		case 0:
			w.l.tidy()
		case 1:
			buckets := 1
			for buckets*laneWidth <= w.l.used {
				buckets *= 2
			}
			w.l.resize(buckets << w.rng.IntN(3))
		case 2:
			w.same()
		}
	}
	w.same()
}

// kinds of names, by how much of what a lane keeps of them is equal.
func collidingNames(n int) map[string][]uint64 {
	rng := rand.New(rand.NewPCG(8, 8))
	kinds := map[string][]uint64{}
	for i := range uint64(n) {
		kinds["random"] = append(kinds["random"], rng.Uint64())
		kinds["one home"] = append(kinds["one home"], nameLike(7, i%128, i))
		kinds["all equal but what is not kept"] = append(kinds["all equal but what is not kept"], nameLike(1<<23, 5, i))
		kinds["tags one bit apart"] = append(kinds["tags one bit apart"], nameLike(1<<20, 6|i&1, i))
		kinds["few homes, the last one too"] = append(kinds["few homes, the last one too"], nameLike(1<<24-1-i%3, i%5, i))
		kinds["equal tags"] = append(kinds["equal tags"], nameLike(uint64(rng.IntN(1<<24)), 1, i))
	}
	return kinds
}

func TestLaneIsAMap(t *testing.T) {
	steps := 20_000
	if raceEnabled {
		steps /= 10
	}
	for kind, names := range collidingNames(400) {
		t.Run(kind, func(t *testing.T) {
			for seed := range uint64(4) {
				newLaneWorld(t, seed, names).run(steps)
			}
		})
	}
}

// More names of one home than a bucket can count pass it. Its count stays, and
// nothing is lost or found that is not there.
func TestLaneCountsSaturate(t *testing.T) {
	w := newLaneWorld(t, 1, collidingNames(2000)["one home"])
	for i := range w.names {
		w.put(i)
	}
	if b := w.l.buckets[w.l.home(7)]; b.tags>>56 != passMost {
		t.Fatalf("%d passed, want the most there can be", b.tags>>56)
	}
	w.same()
	for i := range w.names {
		w.del(i)
	}
	w.same()
	if b := w.l.buckets[w.l.home(7)]; b.tags>>56 != passMost {
		t.Errorf("%d passed, want a count that stays", b.tags>>56)
	}
	w.run(5000)
}

// Names that come and go can make every bucket's count stay. A search for what is
// not there ends all the same.
func TestLaneSearchEndsWhenAllCountsStay(t *testing.T) {
	const buckets, many = 128, 300
	names := make([]uint64, 0, buckets*many)
	for home := range uint64(buckets) {
		for i := range uint64(many) {
			names = append(names, nameLike((home<<printBits+buckets-1)/buckets, i%128, i))
		}
	}
	w := newLaneWorld(t, 1, names)
	w.l.resize(buckets)
	for from := 0; from < len(names); from += many {
		for i := range many {
			w.put(from + i)
		}
		for i := range many {
			w.del(from + i)
		}
	}
	for i, b := range w.l.buckets {
		if b.tags>>56 != passMost {
			t.Fatalf("%d passed bucket %d, want the most there can be", b.tags>>56, i)
		}
	}
	w.same()
	w.put(5)
	w.same()
}
