package index

import (
	"testing"
	"time"
)

// below checks how many blocks of the chain a holder has on GPU or in CPU memory, and in any
// tier, after a sweep.
func (x *fixture) below(what string, h Holder, lower, storage int32) {
	x.t.Helper()
	x.Sweep()
	if m := x.match(h); m.Lower != lower || m.Storage != storage {
		x.t.Errorf("%s: %d blocks down to CPU memory, %d down to storage, want %d and %d", what, m.Lower, m.Storage, lower, storage)
	}
	if err := x.check(); err != nil {
		x.t.Errorf("%s: %v", what, err)
	}
}

// TestUntoldBlocksExpire: blocks below the GPU of a holder that announces no removals end a time
// after their last event, each tier after its own, all copies of a block at once; blocks on GPU
// stay.
func TestUntoldBlocksExpire(t *testing.T) {
	x := newFixture(t, Options{CPUTTL: 10 * time.Minute, StorageTTL: time.Hour, ReplicaTTL: 24 * time.Hour})
	life, all := x.Begin(a), x.all()
	x.send(a, life, x.f.stored(a, TierGPU, all[:2]), x.f.stored(a, TierCPU, all[:8]), x.f.stored(a, TierStorage, all[:16]))
	x.below("at once", a, 8, 16)
	x.clock.t = x.clock.t.Add(6 * time.Minute)
	x.send(a, life, x.f.stored(a, TierCPU, all[:4]), x.f.stored(a, TierCPU, all[:4])) // announced again, and copies
	x.clock.t = x.clock.t.Add(5 * time.Minute)
	x.below("only what was announced again", a, 4, 16)
	x.clock.t = x.clock.t.Add(6 * time.Minute)
	x.below("nothing was", a, 2, 16)
	x.send(a, life, x.f.stored(a, TierCPU, all[:3]))
	x.clock.t = x.clock.t.Add(time.Hour)
	x.below("an hour later", a, 2, 2)
	if n := x.expiring.Load(); n != 0 {
		t.Errorf("%d blocks are still to expire", n)
	}
	if trust, _ := x.Trust(x.ID(a), "", "m"); trust.Exact || trust.Why == "" {
		t.Errorf("%+v, want inexact with a reason", trust)
	}
}

// TestToldBlocksStay: once a holder has announced a removal of a tier, its events tell, and
// blocks of the tier do not expire; a clear and a restart take everything.
func TestToldBlocksStay(t *testing.T) {
	x := newFixture(t, Options{ReplicaTTL: 24 * time.Hour})
	life, all := x.Begin(a), x.all()
	x.send(a, life, x.f.stored(a, TierCPU, all[:8]), x.f.stored(a, TierStorage, all[:8]), x.f.removed(a, TierCPU, all[7]))
	x.clock.t = x.clock.t.Add(12 * time.Hour)
	x.below("CPU memory has removals", a, 7, 7)
	x.send(a, life, x.f.stored(a, TierStorage, all[:8]), Event{Kind: Cleared})
	x.below("cleared", a, 0, 0)
	x.send(a, life, x.f.stored(a, TierStorage, all[:8]))
	life = x.Begin(a)
	x.below("restarted", a, 0, 0)
	if n := x.expiring.Load(); n != 0 {
		t.Errorf("%d blocks are still to expire", n)
	}
	x.send(a, life, x.f.stored(a, TierCPU, all[:8]))
	x.clock.t = x.clock.t.Add(DefaultCPUTTL + time.Second)
	x.below("what the process before has announced does not count", a, 0, 0)
}

// TestUntoldBlocksAreBounded: beyond as many blocks as the index may have, the oldest end early.
func TestUntoldBlocksAreBounded(t *testing.T) {
	x := newFixture(t, Options{MaxBlocks: 32, ReplicaTTL: 24 * time.Hour})
	life, all := x.Begin(a), x.all()
	for i := range all {
		x.send(a, life, x.f.stored(a, TierCPU, all[i:i+1]))
		x.clock.t = x.clock.t.Add(time.Second)
	}
	if n := x.expiring.Load(); n > 32 {
		t.Errorf("%d blocks are kept to expire, want at most 32", n)
	}
	x.sound()
}

// TestLeasesOfGroupsProveNothing: a holder whose groups are not known, or whose full-attention
// group is another one, matches no leased block either.
func TestLeasesOfGroupsProveNothing(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	for group := range 3 {
		for i, spec := range [][]string{{""}, {"", ""}, {"mamba", "mamba", "full_attention"}}[group] {
			ev := x.f.stored(a, TierGPU, x.all()[:1])
			ev.Scope.Group, ev.Spec = i, spec
			x.send(a, inc, ev)
		}
		x.send(a, inc, x.f.removed(a, TierGPU, 0))
		lend(t, x.Index, x.f.scope, a, x.f.key, x.clock.t.Add(time.Minute))
		m := x.match(a)
		hidden := x.Why(x.ID(a), x.f.scope, &Trail{Keys: x.f.key}).Hidden
		if hidden != (group == 1) || group > 0 && m.Blocks != 0 || group == 0 && m.Blocks != 64 {
			t.Errorf("after group %d: %+v, hidden %v", group, m, hidden)
		}
	}
}
