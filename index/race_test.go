package index

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"warmroute/index/internal/hashtable"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
	"warmroute/render/testkit/race"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Lookups run concurrently with all writers. Their results must be possible: the holders
// are in a fixed order, each stores a chain from its start and removes it from its end,
// so a match is never longer than the chain that a holder ever stored, and the one holder
// that never changes always matches in full.
func TestConcurrentReadersSeeOnlyWhatIsPossible(t *testing.T) {
	x := New(Options{SweepEvery: 5 * time.Millisecond, checkpointEvery: 5})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := x.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	f := newForest(rand.New(rand.NewPCG(7, 7)), 400, 1, Scope{Model: "m", Scheme: SchemeTokens, BlockSize: 16})
	steady := Holder{Replica: "steady"}
	deepest := make([][]int, 0, len(f.parent))
	for n := range f.parent {
		deepest = append(deepest, f.path(n))
	}
	inc := x.Begin(steady)
	for _, p := range deepest {
		must.Get(x.Apply(&Batch{Holder: steady, Incarnation: inc, Full: true, Events: []Event{f.stored(steady, TierGPU, p)}}))(t)
	}
	never := x.ID(Holder{Replica: "never"})
	steadyID := x.ID(steady)
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	for w := range 4 {
		wg.Go(func() { churn(t, x, f, deepest, uint64(w), rounds) })
	}
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(9, 9))
		for i := range rounds * 20 {
			p := deepest[rng.IntN(len(deepest))]
			h := Holder{Replica: fmt.Sprint("w", i%4)}
			inc, _ := x.Resume(h) // mostly; its writer may begin it anew at any time
			events := []Event{lent(f.scope, f.keys(p), time.Now().Add(time.Duration(rng.IntN(3))*time.Millisecond))}
			if i%7 == 0 {
				events = append(events, f.taken(p))
			}
			if _, err := x.Apply(&Batch{Holder: h, Incarnation: inc, Full: true, Events: events}); err != nil && !errors.Is(err, ErrIncarnation) {
				t.Error(err)
			}
		}
		cancel()
	})
	for r := range 2 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(r), 3))
			var dst []Match
			for ctx.Err() == nil {
				p := deepest[rng.IntN(len(deepest))]
				dst = x.Lookup(dst[:0], f.scope, f.keys(p))
				if e := x.Why(steadyID, f.scope, &Trail{Keys: f.keys(p)}); e.Blocks != len(p) || !e.Removed.IsZero() {
					t.Errorf("the holder of everything ends after %d blocks: %+v", len(p), e)
					return
				}
				x.Why(x.ID(Holder{Replica: fmt.Sprint("w", len(p)%4)}), f.scope, &Trail{Keys: f.keys(p)})
				found := false
				for _, m := range dst {
					found = found || m.ID == steadyID && int(m.Blocks) == len(p)
					if m.ID == never || int(m.Storage) > len(p) {
						t.Errorf("impossible match %+v for %d blocks", m, len(p))
						return
					}
				}
				if !found {
					t.Errorf("the holder of everything does not match %d blocks: %+v", len(p), dst)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := x.check(); err != nil {
		t.Error(err)
	}
	x.Close()
	if got := x.Lookup(nil, f.scope, f.keys(deepest[10])); len(got) != 0 {
		t.Fatalf("a closed index matches %+v", got)
	}
}

func churn(t *testing.T, x *Index, f *forest, paths [][]int, seed uint64, rounds int) {
	h := Holder{Replica: fmt.Sprint("w", seed)}
	rng := rand.New(rand.NewPCG(seed, 5))
	inc := x.Begin(h)
	for i := range rounds {
		p := paths[rng.IntN(len(paths))]
		evs := []Event{f.stored(h, Tier(rng.IntN(tiers)), p), f.stored(h, TierGPU, p)}
		if rng.IntN(3) == 0 {
			for k := len(p) - 1; k >= len(p)/2; k-- {
				evs = append(evs, f.removed(h, TierGPU, p[k]))
			}
		}
		if rng.IntN(4) == 0 {
			evs = append(evs, f.removed(h, TierGPU, p[rng.IntN(len(p))]))
		}
		if rng.IntN(20) == 0 {
			evs = append(evs, Event{Kind: Cleared})
		}
		if _, err := x.Apply(&Batch{Holder: h, Incarnation: inc, Events: evs}); err != nil {
			t.Error(err)
			return
		}
		switch rng.IntN(20) {
		case 0:
			inc = x.Begin(h)
		case 1:
			if i%2 == 0 {
				x.Remove(h.Replica)
				inc = x.Begin(h)
			}
		}
	}
}

// Two lookups on other goroutines, a writer that never stops, and holes: a
// lookup allocates nothing.
func TestLookupAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	x := New(Options{})
	defer x.Close()
	const blocks, replicas = 768, 64
	s := Scope{Model: "m", Scheme: SchemeTokens, BlockSize: 16}
	contents := make([]prefixhash.Content, blocks)
	hashes := make([]uint64, blocks)
	for i := range contents {
		contents[i], hashes[i] = prefixhash.Content(i*7+1), uint64(i+1)*hashtable.Golden
	}
	keys := prefixhash.AppendLinks(nil, prefixhash.TokenRoot("m", prefixhash.LoRA{}), contents)
	for r := range replicas {
		h := Holder{Replica: fmt.Sprint(r)}
		inc := x.Begin(h)
		b := &Batch{Holder: h, Incarnation: inc, Events: []Event{
			{Kind: Stored, Scope: s, Hashes: hashes, Content: contents},
			{Kind: Removed, Hashes: []uint64{hashes[blocks-1-11*r]}},
		}}
		must.Get(x.Apply(b))(t)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { writeUntil(x, s, stop) })
	dst := make([]Match, 0, 128)
	allocs := lookupAllocs(x, s, keys, dst)
	close(stop)
	wg.Wait()
	if allocs != 0 {
		t.Fatalf("%v allocations in a lookup, want 0", allocs)
	}
	for _, m := range x.Lookup(dst, s, keys) {
		h, _ := x.HolderOf(m.ID)
		var r int
		fmt.Sscan(h.Replica, &r)
		if h.Replica != "writer" && int(m.Blocks) != blocks-1-11*r {
			t.Errorf("replica %d matches %d blocks, want %d", r, m.Blocks, blocks-1-11*r)
		}
	}
}

// lookupAllocs counts the allocations of the lookup itself: a profile of the whole
// process would count the writer too.
func lookupAllocs(x *Index, s Scope, keys []prefixhash.Key, dst []Match) int {
	x.Lookup(dst, s, keys) // the reader's scratch
	best := 1 << 30
	for range 50 {
		best = min(best, int(testing.AllocsPerRun(20, func() { dst = x.Lookup(dst[:0], s, keys) })))
	}
	return best
}

// writeUntil stores and removes without allocating.
func writeUntil(x *Index, s Scope, stop chan struct{}) {
	h := Holder{Replica: "writer"}
	b := &Batch{Holder: h, Incarnation: x.Begin(h), Events: []Event{
		{Kind: Stored, Scope: s, Hashes: make([]uint64, 64), Content: make([]prefixhash.Content, 64)},
		{Kind: Removed, Hashes: make([]uint64, 64)},
	}}
	for n := uint64(1); ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		for i := range 64 {
			v := n<<8 | uint64(i)
			b.Events[0].Hashes[i], b.Events[1].Hashes[63-i] = v*hashtable.Golden, v*hashtable.Golden
			b.Events[0].Content[i] = prefixhash.Content(v)
		}
		x.Apply(b)
	}
}
