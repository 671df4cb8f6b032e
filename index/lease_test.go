package index

import (
	"testing"
	"time"

	"warmroute/render/testkit/race"
)

// TestSpeculationAllocatesNothing: requests come and go, and with them entries
// of their own; the memory of the first ones does for all.
func TestSpeculationAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector drops pooled memory at random")
	}
	c := newRequests(t)
	for range 2000 {
		c.request()
	}
	l := (*c.x.keyspaces.Load())[c.scope].leases[leaseSpeculative].Load()
	builds := l.Counts().Builds
	if n := testing.AllocsPerRun(1000, c.request); n != 0 {
		t.Errorf("a lease of 400 blocks and its withdrawal allocate %v times", n)
	}
	if n := l.Counts().Builds - builds; n != 0 {
		t.Errorf("the table was rebuilt %d times in 1000 requests", n)
	}
	if n := l.Counts().Leases; n != len(c.flight) {
		t.Errorf("%d leases are kept, want those of the %d requests under way", n, len(c.flight))
	}
}

// TestReportsEndLeases: a lease ends with its last entry, for whatever reason that
// ends, and not before.
func TestReportsEndLeases(t *testing.T) {
	x := newFixture(t, Options{})
	inc, id := x.Begin(a), x.ID(a)
	leases := func() int {
		return (*x.keyspaces.Load())[x.f.scope].leases[leaseSpeculative].Load().Counts().Leases
	}
	later := x.clock.t.Add(time.Minute)
	x.Speculate(x.f.scope, id, x.f.key, later)
	x.Speculate(x.f.scope, id, x.f.key[:8], later.Add(-time.Second)) // lasts no longer: holds nothing
	if n := leases(); n != 1 {
		t.Errorf("%d leases, want 1", n)
	}
	x.Speculate(x.f.scope, id, x.f.key[:8], later.Add(time.Second))
	if n := leases(); n != 2 {
		t.Errorf("%d leases, want 2", n)
	}
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()[:8]))
	if n := leases(); n != 1 {
		t.Errorf("%d leases after the first 8 blocks were stored, want 1", n)
	}
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()[8:63]))
	x.Withdraw(x.f.scope, id, x.f.key[63:])
	if n, held := leases(), x.counts().Leases; n != 0 || held != 0 {
		t.Errorf("%d leases and %d entries at the end, want none", n, held)
	}
}

// TestHybridSpeculationProvesNothing: a holder whose groups are not known, or
// whose full-attention group is another one, matches no speculated block either.
func TestHybridSpeculationProvesNothing(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	for group := range 3 {
		for i, spec := range [][]string{{""}, {"", ""}, {"mamba", "mamba", "full_attention"}}[group] {
			ev := x.f.stored(a, TierGPU, x.all()[:1])
			ev.Scope.Group, ev.Spec = i, spec
			x.send(a, inc, ev)
		}
		x.send(a, inc, x.f.removed(a, TierGPU, 0))
		x.Speculate(x.f.scope, x.ID(a), x.f.key, x.clock.t.Add(time.Minute))
		m := x.match(a)
		if hybrid := group == 1; m.HybridUnknown != hybrid || group > 0 && m.Blocks != 0 || group == 0 && m.Blocks != 64 {
			t.Errorf("after group %d: %+v", group, m)
		}
	}
}

// A removed block ends the speculation about it, where it is the last one and in the middle.
func TestRemovalsEndSpeculation(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
	x.Speculate(x.f.scope, x.ID(a), x.f.key, x.clock.t.Add(time.Minute))
	for i, n := range []int{63, 40} {
		x.send(a, inc, x.f.removed(a, TierGPU, n))
		want, left := []int32{63, 40}[i], 63-i
		if m := x.match(a); m.Blocks != want || m.Reported != want {
			t.Errorf("block %d is removed: %+v, want %d blocks", n, m, want)
		}
		if got := x.counts().Leases; got != left {
			t.Errorf("block %d is removed: %d leases, want %d", n, got, left)
		}
	}
}
