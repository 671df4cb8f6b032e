package prompttree

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/prefixhash"
)

var (
	start = time.Unix(1_700_000_000, 0)
	model = Model{Name: "m"}
)

const ttl = time.Minute

// chain links contents behind one root.
func chain(contents ...uint64) []prefixhash.Key {
	var out []prefixhash.Key
	parent := prefixhash.Key(1)
	for _, c := range contents {
		parent = prefixhash.Link(parent, prefixhash.Content(c))
		out = append(out, parent)
	}
	return out
}

// depths returns Match's result, deepest per holder.
func depths(t *Trees, c []prefixhash.Key, now time.Time) map[index.HolderID]int {
	out := map[index.HolderID]int{}
	t.Match(model, c, now, ttl, func(h index.HolderID, depth int) { out[h] = depth })
	return out
}

func TestTheLastWriterOwnsItsPath(t *testing.T) {
	trees := New(Options{})
	trees.Observe(model, chain(1, 2, 3, 4), 7, start, ttl)
	trees.Observe(model, chain(1, 2, 9), 8, start, ttl)
	got := depths(trees, chain(1, 2, 3, 4, 5), start)
	if got[7] != 4 || got[8] != 2 || len(got) != 2 {
		t.Errorf("match %v, want 7 at 4 and 8 at 2", got)
	}
	if got := depths(trees, chain(2, 3), start); len(got) != 0 {
		t.Errorf("a chain that begins elsewhere matches %v", got)
	}
}

func TestNothingIsDoneWithNothing(t *testing.T) {
	trees := New(Options{})
	trees.Observe(model, nil, 7, start, ttl)
	if got := depths(trees, nil, start); len(got) != 0 || len(trees.trees) != 0 {
		t.Errorf("an empty chain made %v and %d trees", got, len(trees.trees))
	}
	c := chain(1)
	yield := func(index.HolderID, int) {}
	if n := testing.AllocsPerRun(100, func() { trees.Match(Model{Name: "never used"}, c, start, time.Minute, yield) }); n != 0 || len(trees.trees) != 0 {
		t.Errorf("a model that never used the tree allocates %v times, %d trees", n, len(trees.trees))
	}
}

func TestAnEntryExactlyTTLOldLives(t *testing.T) {
	trees := New(Options{})
	trees.Observe(model, chain(1, 2), 7, start, ttl)
	if w := trees.Weight(model, 7, start.Add(2*time.Minute)); w != 1 {
		t.Errorf("weight %g after a half-life, want half of two entries", w)
	}
	if got := depths(trees, chain(1, 2), start.Add(time.Minute)); got[7] != 2 {
		t.Errorf("exactly TTL old: %v", got)
	}
	if got := depths(trees, chain(1, 2), start.Add(time.Minute+1)); len(got) != 0 {
		t.Errorf("a nanosecond more: %v", got)
	}
	trees.Observe(model, chain(9), 7, start.Add(time.Minute), ttl)
	if got := depths(trees, chain(1, 2), start.Add(time.Minute)); got[7] != 2 {
		t.Errorf("exactly TTL old when others were observed: %v", got)
	}
	trees.Observe(model, chain(3), 7, start.Add(time.Minute+1), ttl)
	if n := trees.Entries(); n != 2 {
		t.Errorf("%d entries after the others expired", n)
	}
	if w := trees.Weight(model, 7, start.Add(time.Minute+1)); !(math.Abs(w-2) <= 1e-9) { // which NaN is not
		t.Errorf("weight %g, want that of two fresh entries", w)
	}
}

// TestTheTTLOfEachCallCounts: a model's may change at any time.
func TestTheTTLOfEachCallCounts(t *testing.T) {
	trees := New(Options{})
	trees.Observe(model, chain(1, 2), 7, start, time.Hour)
	later := start.Add(30 * time.Minute)
	for ttl, want := range map[time.Duration]int{time.Minute: 0, time.Hour: 2} {
		got := 0
		trees.Match(model, chain(1, 2), later, ttl, func(index.HolderID, int) { got++ })
		if got != want {
			t.Errorf("a TTL of %v finds %d entries, want %d", ttl, got, want)
		}
	}
	trees.Invalidate(start.Add(time.Second), 8)
	trees.Invalidate(later, 9)
	if gone := *trees.gone.Load(); len(gone) != 2 {
		t.Errorf("%d holders kept as gone, want both: an hour's TTL was asked for", len(gone))
	}
	trees.Observe(Model{Name: "other"}, chain(3), 7, later, time.Minute)
	trees.Observe(model, chain(3), 7, later, time.Minute)
	if n := trees.Entries(); n != 2 {
		t.Errorf("%d entries, want one per model: the rest is older than a minute", n)
	}
}

func TestAnAncestorOutlivesItsDescendants(t *testing.T) {
	trees := New(Options{})
	trees.Observe(model, chain(1, 2, 3), 7, start, ttl)
	trees.Observe(model, chain(1, 2), 7, start.Add(40*time.Second), ttl)
	if got := depths(trees, chain(1, 2, 3), start.Add(70*time.Second)); got[7] != 2 {
		t.Errorf("the leaf expired, its ancestors did not: %v", got)
	}
}

func TestMaxEntriesDropsLeavesFirst(t *testing.T) {
	trees := New(Options{MaxEntries: 5})
	trees.Observe(model, chain(1, 2, 3), 7, start, ttl)
	trees.Observe(model, chain(1, 2, 4), 8, start.Add(time.Second), ttl)
	trees.Observe(model, chain(1, 5), 8, start.Add(2*time.Second), ttl)
	if n := trees.Entries(); n != 5 {
		t.Errorf("%d entries", n)
	}
	trees.Observe(model, chain(1, 6), 8, start.Add(3*time.Second), ttl)
	if got := depths(trees, chain(1, 2, 3), start.Add(3*time.Second)); got[7] != 0 || got[8] != 2 {
		t.Errorf("the oldest leaf should be gone, its path not: %v", got)
	}
	trees.Observe(model, chain(10, 11, 12, 13, 14, 15, 16), 9, start.Add(4*time.Second), ttl)
	if got := depths(trees, chain(10, 11, 12, 13, 14, 15, 16), start.Add(4*time.Second)); got[9] != 5 {
		t.Errorf("a chain longer than the cap keeps its beginning: %v", got)
	}
}

func TestInvalidateForgetsWhatAHolderServedBefore(t *testing.T) {
	trees := New(Options{})
	trees.Observe(model, chain(1, 2, 3), 7, start, ttl)
	trees.Observe(model, chain(1), 8, start, ttl)
	trees.Invalidate(start.Add(time.Second), 7)
	if got := depths(trees, chain(1, 2, 3), start.Add(time.Second)); got[7] != 0 || got[8] != 1 {
		t.Errorf("after 7 went: %v", got)
	}
	trees.Observe(model, chain(1, 2), 7, start.Add(2*time.Second), ttl) // it came back
	if got := depths(trees, chain(1, 2, 3), start.Add(2*time.Second)); got[7] != 2 {
		t.Errorf("after 7 came back: %v", got)
	}
	trees.Observe(model, chain(1, 9), 7, start.Add(2*time.Second), ttl)
	trees.Invalidate(start.Add(2*time.Second), 7)
	if got := depths(trees, chain(1, 9), start.Add(2*time.Second)); got[7] != 0 {
		t.Errorf("what it served up to the moment it went is there: %v", got)
	}
	trees.Invalidate(start.Add(2*time.Second+ttl), 9)
	if gone := *trees.gone.Load(); len(gone) != 2 {
		t.Errorf("%d holders kept as gone, what the first served may be exactly as old as its TTL", len(gone))
	}
	trees.Invalidate(start.Add(time.Hour), 8)
	if gone := *trees.gone.Load(); len(gone) != 1 {
		t.Errorf("%d holders kept as gone, the first is past its TTL", len(gone))
	}
}

func TestDefaults(t *testing.T) {
	for _, o := range []Options{{}, {HalfLife: -1, MaxEntries: -1}} {
		if got := o.withDefaults(); got != (Options{HalfLife: 2 * time.Minute, MaxEntries: 1 << 16}) {
			t.Errorf("%+v becomes %+v", o, got)
		}
	}
	if o := (Options{HalfLife: 1, MaxEntries: 1}); o.withDefaults() != o {
		t.Errorf("%+v becomes %+v", o, o.withDefaults())
	}
}

// TestWeightsAreTheSumOfDecayedNodes holds the running sums to a walk over all
// entries, under random operations.
func TestWeightsAreTheSumOfDecayedNodes(t *testing.T) {
	const ttl = 30 * time.Second
	rng := rand.New(rand.NewPCG(1, 2))
	trees := New(Options{HalfLife: 10 * time.Second, MaxEntries: 200})
	now := start
	for range 5000 {
		now = now.Add(time.Duration(rng.IntN(1000)) * time.Millisecond)
		c := make([]uint64, 1+rng.IntN(8))
		for i := range c {
			c[i] = uint64(rng.IntN(4))
		}
		trees.Observe(model, chain(c...), index.HolderID(rng.IntN(4)), now, ttl)
		of := trees.trees[model]
		want, ages := map[index.HolderID]float64{}, of.newest
		for n := of.newest; n != nil; n = n.older {
			want[n.holder] += of.decay(nanos(now) - n.seen)
			if n.seen > ages.seen {
				t.Fatal("the list is not by age")
			}
			ages = n
		}
		for h := range index.HolderID(4) {
			if got := trees.Weight(model, h, now); !(math.Abs(got-want[h]) <= 1e-3) {
				t.Fatalf("holder %d weighs %g, its entries %g", h, got, want[h])
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	trees := New(Options{MaxEntries: 64})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for k := range 50 {
				c := chain(uint64(k%7), uint64(i%5), uint64(k))
				trees.Observe(model, c, index.HolderID(i), start, ttl)
				trees.Match(model, c, start, time.Minute, func(index.HolderID, int) {})
				trees.Weight(model, index.HolderID(i), start)
				if k == 25 {
					trees.Invalidate(start, index.HolderID(i))
				}
			}
		})
	}
	wg.Wait()
	if n := trees.Entries(); n > 64 {
		t.Errorf("%d entries", n)
	}
}
