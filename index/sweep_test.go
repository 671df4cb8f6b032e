package index

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"warmroute/prefixhash"
)

// Sweeps that are started at once run one after the other: the slots of a dead holder are
// given back once, so no two holders get the same slot.
func TestSweepsAtOnceGiveASlotBackOnce(t *testing.T) {
	x := newFixture(t, Options{})
	for round := range 60 {
		holders := 4 + 8*(round%2) // more than the slots that were given back
		for i := range holders {
			h := Holder{Replica: fmt.Sprint(round%2, "-", i)}
			x.send(h, x.Begin(h), x.f.stored(h, TierGPU, x.all()[:8+i]), x.f.stored(h, TierCPU, x.all()[:8]), x.f.stored(h, TierStorage, x.all()[:8]))
		}
		sh, seen := x.allShards()[0], map[int]Holder{}
		for i := range holders {
			h := Holder{Replica: fmt.Sprint(round%2, "-", i)}
			slot, ok := sh.slots.Of(int32(x.ID(h)))
			if other, twice := seen[slot]; !ok || twice {
				t.Fatalf("round %d: %v and %v have slot %d (%v)", round, h, other, slot, ok)
			}
			seen[slot] = h
		}
		for i := range holders {
			x.Remove(fmt.Sprint(round%2, "-", i))
		}
		sh.mu.Lock() // they meet here, unless one waits for the other before
		var sweeps sync.WaitGroup
		for i := range 4 {
			if i%2 == 0 {
				sweeps.Go(x.Sweep)
			} else {
				sweeps.Go(x.sweepSoon)
			}
		}
		for start := time.Now(); time.Since(start) < 3*time.Millisecond; { // the lock is fair then
			runtime.Gosched()
		}
		sh.mu.Unlock()
		sweeps.Wait()
		if dead := len(sh.slots.Dead()); dead != 0 {
			t.Fatalf("round %d: %d slots are dead after a sweep", round, dead)
		}
	}
	x.sound()
}

// Empty scopes go when half of the scopes are used. The other scopes of their shard keep their blocks and
// hashes.
func TestEmptyScopesGoAlone(t *testing.T) {
	x := newFixture(t, Options{MaxScopes: 4})
	in := func(adapter string, ev Event) Event {
		ev.Scope.LoRA = prefixhash.LoRA{Set: true, Name: adapter}
		return ev
	}
	inc, tiersOf := x.Begin(a), []Tier{TierGPU, TierCPU}
	for _, tier := range tiersOf {
		x.send(a, inc, in("going", x.f.stored(a, tier, x.all()[:9])))
	}
	x.Sweep()
	if n := x.counts().Scopes; n != 1 {
		t.Errorf("%d scopes, want 1", n)
	}
	for _, tier := range tiersOf {
		x.send(a, inc, x.f.removed(a, tier, x.all()[:9]...))
	}
	x.Sweep()
	if n := x.counts().Scopes; n != 1 {
		t.Errorf("%d scopes when one of four is used, want it kept", n)
	}
	for _, tier := range tiersOf {
		x.send(a, inc, in("staying", x.f.stored(a, tier, x.all()[:5])))
	}
	x.Sweep()
	if n := x.counts().Scopes; n != 1 {
		t.Errorf("%d scopes, want the empty one gone", n)
	}
	for _, tier := range tiersOf { // its place in the shard is free
		ev := x.blocksOf(1, 3)
		ev.Tier = tier
		if res := x.send(a, inc, in("coming", ev), x.f.removed(a, tier, 4)); res.Stored != 3 || res.Removed != 1 {
			t.Errorf("%+v, want 3 blocks stored and one removed", res)
		}
	}
	for s, n := range x.Scopes() {
		if want := map[string]int{"staying": 2 * 4, "coming": 2 * 3}[s.LoRA.Name]; n != want {
			t.Errorf("scope %q has %d blocks, want %d", s.LoRA.Name, n, want)
		}
	}
	x.sound()
	x.Remove(a.Replica)
	x.Sweep()
	x.sound()
	if st := x.counts(); st.Scopes != 0 || st.Blocks != 0 || len(x.shards) != 0 {
		t.Errorf("%+v and %d shards at the end, want nothing", st, len(x.shards))
	}
}

// A shard with a holder stays when its scopes go: the holder's next blocks are stored there.
func TestAShardStaysWithItsHolders(t *testing.T) {
	x := newFixture(t, Options{MaxScopes: 1})
	inc := x.Begin(a)
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
	sh := x.allShards()[0]
	x.send(a, inc, x.f.removed(a, TierGPU, x.all()...))
	x.Sweep()
	if all := x.allShards(); x.counts().Scopes != 0 || len(all) != 1 || all[0] != sh {
		t.Errorf("%d scopes and %d shards, want the shard alone", x.counts().Scopes, len(all))
	}
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
	x.wantReported(a, 64)
}

// A sweep gives the memory of tables back.
func TestSweepsGiveMemoryBack(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	empty := x.f.stored(a, TierCPU, x.all()[:1])
	empty.Scope.LoRA.Set = true // another scope, whose place in the shard is before or behind
	x.send(a, inc, empty)
	ev := x.blocksOf(1, 50_000)
	ev.Tier = TierCPU
	x.send(a, inc, ev)
	full := x.counts().Bytes
	x.send(a, inc, Event{Kind: Removed, Tier: TierCPU, Hashes: ev.Hashes})
	for range 3 { // entries that a lookup may see go with a later one
		x.Sweep()
	}
	if n := x.counts().Bytes; n > full/10 {
		t.Errorf("%d bytes of nothing, %d of 50,000 blocks", n, full)
	}
}

// Run wakes for the deadline that comes first, in whatever scope, and for the next sweep if there is none.
func TestTheNextDeadlineIsTheFirst(t *testing.T) {
	x := newFixture(t, Options{SweepEvery: time.Hour})
	if d := x.untilExpiry(); d != time.Hour {
		t.Errorf("%v without a deadline, want the time between sweeps", d)
	}
	for i, minutes := range []int{7, 3, 9, 2, 5} {
		s := x.f.scope
		s.BlockSize = 16 << i
		until := x.clock.t.Add(time.Duration(minutes) * time.Minute)
		lend(t, x.Index, s, a, x.f.key[:1], until)
		first := []int{7, 3, 3, 2, 2}[i]
		if d := x.untilExpiry().Round(time.Second); d != time.Duration(first)*time.Minute {
			t.Errorf("%v until the first of %d deadlines, want %d minutes", d, i+1, first)
		}
	}
	blocks := 0
	for _, n := range x.Scopes() {
		blocks += n
	}
	if blocks != 5 {
		t.Errorf("%d blocks, want 5", blocks)
	}
}
