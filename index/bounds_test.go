package index

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"warmroute/index/internal/radix"
	"warmroute/prefixhash"
)

func TestScopesNeverMatchEachOther(t *testing.T) {
	x := newFixture(t, Options{})
	x.send(a, x.Begin(a), x.f.stored(a, TierGPU, x.all()))
	x.wantReported(a, 64)
	for name, change := range map[string]func(*Scope){
		"tenant":            func(s *Scope) { s.Tenant = "other" },
		"model":             func(s *Scope) { s.Model = "other" },
		"scheme":            func(s *Scope) { s.Scheme = "engine" },
		"empty scheme":      func(s *Scope) { s.Scheme = "" },
		"block size":        func(s *Scope) { s.BlockSize = 32 },
		"group":             func(s *Scope) { s.Group = 1 },
		"adapter, no name":  func(s *Scope) { s.LoRA = prefixhash.LoRA{Set: true} },
		"adapter of a name": func(s *Scope) { s.LoRA = prefixhash.LoRA{Set: true, Name: "l"} },
	} {
		s := x.f.scope
		change(&s)
		if got := x.Lookup(nil, s, x.f.key); len(got) != 0 {
			t.Errorf("another %s matches %+v", name, got)
		}
	}
}

func TestEmptySchemeIsNeverStored(t *testing.T) {
	x := newFixture(t, Options{})
	ev := x.f.stored(a, TierGPU, x.all())
	ev.Scope.Scheme = ""
	if res := x.send(a, x.Begin(a), ev); res.Dropped != 64 || res.Stored != 0 {
		t.Errorf("stored without a scheme: %+v, want 64 dropped", res)
	}
	if st := x.counts(); st.Scopes != 0 || st.Blocks != 0 {
		t.Errorf("stats %+v, want nothing kept", st)
	}
}

func TestMalformedEventsAreDroppedAndCounted(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	short := x.f.stored(a, TierGPU, x.all())
	short.Content = short.Content[:3]
	tier := x.f.stored(a, 9, x.all())
	for _, ev := range []Event{short, tier, {Kind: 77, Hashes: make([]uint64, 64)}} {
		if res := x.send(a, inc, ev); res.Dropped != 64 {
			t.Errorf("%+v, want 64 dropped", res)
		}
	}
	if res := x.send(a, inc, Event{Kind: Removed, Hashes: []uint64{5}}); res.Unknown != 1 {
		t.Errorf("removal of nothing: %+v, want 1 unknown", res)
	}
}

func TestLateBatchesOfAnOldIncarnationChangeNothing(t *testing.T) {
	x := newFixture(t, Options{})
	old := x.Begin(a)
	x.send(a, old, x.f.stored(a, TierGPU, x.all()))
	now := x.Begin(a)
	x.wantReported(a, 0)
	if _, err := x.Apply(&Batch{Holder: a, Incarnation: old, Events: []Event{x.f.stored(a, TierGPU, x.all())}}); !errors.Is(err, ErrIncarnation) {
		t.Errorf("late batch: %v, want ErrIncarnation", err)
	}
	x.wantReported(a, 0)
	x.send(a, now, x.f.stored(a, TierGPU, x.all()[:5]))
	x.wantReported(a, 5)
	x.Sweep()
	x.wantReported(a, 5)
	x.Remove(a.Replica)
	if got := x.Lookup(nil, x.f.scope, x.f.key); len(got) != 0 {
		t.Errorf("a removed replica matches %+v", got)
	}
	if _, err := x.Apply(&Batch{Holder: a, Incarnation: now}); !errors.Is(err, ErrIncarnation) {
		t.Errorf("batch of a removed replica: %v, want ErrIncarnation", err)
	}
	x.Sweep()
	if st := x.counts(); st.Blocks != 0 || st.Hashes != 0 {
		t.Errorf("after the sweep %+v, want nothing", st)
	}
}

func TestClearedTakesWhatFollowsInTheBatch(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
	x.send(a, inc, Event{Kind: Cleared}, x.f.stored(a, TierGPU, x.all()[:3]))
	x.wantReported(a, 3)
}

func TestScopesAreBoundedAndDrainedOnesGiveWay(t *testing.T) {
	x := newFixture(t, Options{MaxScopes: 4})
	inc := x.Begin(a)
	for round := range 3 {
		for i := range 5 {
			ev := x.f.stored(a, TierGPU, x.all())
			ev.Scope.LoRA = prefixhash.LoRA{Set: true, Name: fmt.Sprint(round, i)}
			want := 64
			if i == 4 {
				want = 0
			}
			if res := x.send(a, inc, ev); res.Stored != want || res.Dropped != 64-want {
				t.Errorf("round %d scope %d: %+v, want %d stored", round, i, res, want)
			}
			x.send(a, inc, x.f.removed(a, TierGPU, x.all()...))
		}
		x.Sweep()
		if n := x.counts().Scopes; n != 0 {
			t.Errorf("%d scopes after the sweep, want 0", n)
		}
	}
}

func TestSilentReplicaExpiresWhenStrictlyOlder(t *testing.T) {
	x := newFixture(t, Options{ReplicaTTL: time.Minute})
	inc := x.Begin(a)
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
	x.clock.t = x.clock.t.Add(time.Minute)
	x.Sweep()
	x.wantReported(a, 64)
	if last := x.LastReport(x.ID(a)); x.clock.t.Sub(last) != time.Minute {
		t.Errorf("the last report was at %v, want 1m before %v", last, x.clock.t)
	}
	x.send(a, inc) // alive
	x.clock.t = x.clock.t.Add(time.Minute)
	x.send(a, inc)
	x.clock.t = x.clock.t.Add(time.Minute + 1)
	x.Sweep()
	x.wantReported(a, 0)
	if _, err := x.Apply(&Batch{Holder: a, Incarnation: inc}); !errors.Is(err, ErrIncarnation) {
		t.Errorf("batch after expiry: %v, want ErrIncarnation", err)
	}
}

func TestLeasesAreBounded(t *testing.T) {
	x := newFixture(t, Options{MaxBlocks: 100})
	for i := range 50 {
		lend(t, x.Index, x.f.scope, Holder{Replica: fmt.Sprint(i)}, x.f.key[:10], x.clock.t.Add(time.Duration(i+1)*time.Second))
		if n := x.expiring.Load(); n > 100 {
			t.Fatalf("%d leases, want at most 100", n)
		}
	}
	x.clock.t = x.clock.t.Add(10 * time.Second)
	x.Sweep()
	last := Holder{Replica: "49"}
	lend(t, x.Index, x.f.scope, last, x.f.key[:10], x.clock.t.Add(time.Second))
	if m := x.match(last); m.Blocks != 10 {
		t.Errorf("%+v, want all of the newest once the first have ended", m)
	}
}

func TestBeginEndsLeases(t *testing.T) {
	x := newFixture(t, Options{})
	lend(t, x.Index, x.f.scope, a, x.f.key, x.clock.t.Add(time.Minute))
	if m := x.match(a); m.Blocks != 64 {
		t.Errorf("%+v, want 64", m)
	}
	x.Begin(a)
	if m := x.match(a); m.Blocks != 0 {
		t.Errorf("%+v, want none", m)
	}
}

func TestOptionsAreClamped(t *testing.T) {
	o := Options{MaxScopes: -1, MaxScopeBlocks: -1, MaxBlocks: -1, SweepEvery: -1, ReplicaTTL: -1}.Effective()
	if o.MaxScopes != DefaultMaxScopes || o.MaxScopeBlocks != DefaultMaxScopeBlocks || o.MaxBlocks != DefaultMaxBlocks ||
		o.SweepEvery != DefaultSweepEvery || o.ReplicaTTL != DefaultReplicaTTL {
		t.Errorf("effective options %+v are not the defaults", o)
	}
	for more := range 2 {
		if o := (Options{MaxScopes: radix.MaxTrees + more}).Effective(); o.MaxScopes != radix.MaxTrees {
			t.Errorf("%d scopes more than there can be: %d", more, o.MaxScopes)
		}
	}
}

func TestCloseIsIdempotentAndFinal(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()), x.f.stored(a, TierCPU, x.all()))
	lend(t, x.Index, x.f.scope, a, x.f.key, x.clock.t.Add(time.Minute))
	for range 2 {
		x.Close()
	}
	if got := x.Lookup(nil, x.f.scope, x.f.key); len(got) != 0 {
		t.Errorf("a closed index matches %+v", got)
	}
	if _, err := x.Apply(&Batch{Holder: a, Incarnation: inc}); !errors.Is(err, ErrClosed) {
		t.Errorf("apply: %v, want ErrClosed", err)
	}
	x.Remove(a.Replica)
	x.Begin(b)
	x.Sweep()
	for e := range x.Snapshot() {
		t.Errorf("a closed index yields %+v", e)
	}
	if st := x.counts(); st.Blocks != 0 {
		t.Errorf("%+v, want nothing", st)
	}
}

func TestRunSweepsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(Options{ReplicaTTL: 3 * time.Minute})
		f := newFixture(t, Options{}).f
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { x.Run(ctx) })
		inc := x.Begin(a)
		x.Apply(&Batch{Holder: a, Incarnation: inc, Events: []Event{f.stored(a, TierGPU, []int{0, 1, 2})}})
		lend(t, x, f.scope, b, f.key, time.Now().Add(1500*time.Millisecond))
		time.Sleep(1499 * time.Millisecond)
		if n := x.counts().Blocks; n != 64+3 {
			t.Errorf("%d blocks before the deadline, want 64 leased and 3 others", n)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if n := x.counts().Blocks; n != 3 {
			t.Errorf("%d blocks after the deadline, want the 3 others", n)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := x.counts().Blocks; n != 0 {
			t.Errorf("%d blocks of a silent replica, want 0", n)
		}
		cancel()
		wg.Wait()
		x.Close()
	})
}

func TestSnapshotRestoresHolesCopiesTiersAndHashes(t *testing.T) {
	for seed := range uint64(6) {
		w := newWorld(t, seed, 2, SchemeTokens)
		w.tiers = tiers
		for range 800 {
			w.step()
		}
		y := New(Options{Now: w.clock.now})
		t.Cleanup(y.Close)
		entries := slices.Collect(w.x.Snapshot())
		if len(entries) == 0 {
			t.Fatal("an empty snapshot")
		}
		if res := y.Restore(slices.Values(entries)); res.Dropped != 0 {
			t.Fatalf("seed %d: %+v, want nothing dropped", seed, res)
		}
		w.x.Close()
		w.x = y
		w.x.Sweep()
		for h := range w.inc {
			maps.DeleteFunc(w.m.strays[h], func(_ int, one modelStray) bool { return !one.keyed }) // a snapshot has none of these
			inc, ok := y.Resume(h)
			if !ok {
				inc = y.Begin(h)
			}
			w.inc[h] = inc
		}
		w.check(1)
		w.run(800)
	}
}

func TestNumbersAreStableUntilRemoved(t *testing.T) {
	x := newFixture(t, Options{})
	id := x.ID(a)
	x.Begin(a)
	x.Begin(a)
	if x.ID(a) != id || x.ID(b) == id {
		t.Error("a number changed, or is shared")
	}
	if h, ok := x.HolderOf(id); !ok || h != a {
		t.Errorf("number %d is %v, %v", id, h, ok)
	}
	x.Remove(a.Replica)
	if _, ok := x.HolderOf(id); ok {
		t.Error("the number of a removed replica stands for somebody")
	}
	for _, bad := range []HolderID{-1, 1 << 30} {
		if _, ok := x.HolderOf(bad); ok {
			t.Errorf("%d stands for somebody", bad)
		}
	}
	seen := map[HolderID]bool{}
	for i := range 3 * minFreeIDs {
		h := Holder{Replica: fmt.Sprint(i)}
		seen[x.ID(h)] = true
		x.Remove(h.Replica)
	}
	if len(seen) > minFreeIDs+2 {
		t.Errorf("%d numbers for replicas that come and go, want them used again", len(seen))
	}
}
