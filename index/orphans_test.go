package index

import "testing"

// As many orphans are kept as may be, and no holder is incomplete whose orphans have joined.
func TestOrphansUpToTheBound(t *testing.T) {
	x := newFixture(t, Options{MaxOrphans: 10})
	inca := x.Begin(a)
	if res := x.send(a, inca, x.f.stored(a, TierGPU, x.all()[20:30])); res.Orphaned != 10 || res.Dropped != 0 {
		t.Errorf("%+v, want 10 orphans", res)
	}
	x.send(a, inca, x.f.stored(a, TierGPU, x.all()[:20]))
	for _, n := range []int{4, 6} {
		if res := x.send(a, inca, x.f.stored(a, TierCPU, x.all()[40:40+n])); res.Orphaned != n || res.Dropped != 0 {
			t.Errorf("%+v, want %d orphans", res, n)
		}
	}
	if m := x.match(a); m.Reported != 30 || m.Incomplete {
		t.Errorf("%+v, want 30 blocks, complete", m)
	}
	x = newFixture(t, Options{MaxOrphans: 10})
	inca, incb := x.Begin(a), x.Begin(b)
	x.send(a, inca, x.f.stored(a, TierGPU, x.all()[2:6]))
	x.send(b, incb, x.f.stored(b, TierGPU, x.all()[:1]), x.f.stored(b, TierGPU, x.all()[10:15]))
	x.send(a, inca, x.f.stored(a, TierGPU, x.all()[:2])) // joined
	if res := x.send(b, incb, x.f.stored(b, TierGPU, x.all()[20:26])); res.Orphaned != 6 || res.Dropped != 5 {
		t.Errorf("%+v, want 6 orphans and the 5 older ones dropped", res)
	}
	if m := x.match(a); m.Reported != 6 || m.Incomplete {
		t.Errorf("%+v, want 6 blocks, complete", m)
	}
	if m := x.match(b); m.Reported != 1 || !m.Incomplete {
		t.Errorf("%+v, want one block, incomplete", m)
	}
	x.Remove(b.Replica)
	x.Sweep()
	if n := x.Stats().Orphans; n != 0 {
		t.Errorf("%d orphans of a removed holder", n)
	}
}
