package index

import "testing"

// TestStraysCountWhenStoredAgain: a block behind a removed one, or stored before the one before it is
// known, is still in the engine. Once it is stored again it stays until every copy is removed.
func TestStraysCountWhenStoredAgain(t *testing.T) {
	for name, stray := range map[string]func(x *fixture, inc uint64){
		"behind a removed block": func(x *fixture, inc uint64) {
			x.send(a, inc, x.f.stored(a, TierGPU, x.all()[:4]), x.f.stored(a, TierGPU, x.all()[:4]))
			x.send(a, inc, x.f.removed(a, TierGPU, 1), x.f.removed(a, TierGPU, 1))
		},
		"behind an unknown block": func(x *fixture, inc uint64) {
			x.send(a, inc, x.f.stored(a, TierGPU, x.all()[3:4]), x.f.stored(a, TierGPU, x.all()[3:4]))
		},
	} {
		x := newFixture(t, Options{})
		inc := x.Begin(a)
		stray(x, inc)
		x.send(a, inc, x.f.stored(a, TierGPU, x.all()[:4]))
		for range 2 {
			x.send(a, inc, x.f.removed(a, TierGPU, 3))
			if x.wantReported(a, 4); t.Failed() {
				t.Fatal(name)
			}
		}
		x.send(a, inc, x.f.removed(a, TierGPU, 3))
		x.wantReported(a, 3)
		x.send(a, inc, x.f.stored(a, TierGPU, x.all()[3:4]), x.f.removed(a, TierGPU, 3))
		x.wantReported(a, 3)
		if err := x.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStraysAreHitAgain: once the blocks before them are stored, an engine hits the blocks behind a removed
// one that it kept.
func TestStraysAreHitAgain(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()[:8]), x.f.removed(a, TierGPU, 1))
	x.wantReported(a, 1)
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()[10:12]), x.f.stored(a, TierGPU, x.all()[8:10])) // behind strays, and behind nothing known
	x.send(a, inc, x.f.removed(a, TierGPU, 6), x.f.stored(a, TierGPU, x.all()[1:2]))
	x.wantReported(a, 6)
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()[6:7]))
	if x.wantReported(a, 10); t.Failed() {
		t.Log("strays behind strays")
	}
	x.send(a, inc, x.f.removed(a, TierGPU, 7))
	x.wantReported(a, 7)
	if err := x.check(); err != nil {
		t.Error(err)
	}
}

// TestStraysThatAreReportedInFull: a report of all blocks counts each once.
func TestStraysThatAreReportedInFull(t *testing.T) {
	var s strays
	s.add(1, stray{copies: 1}, true)
	s.add(1, stray{copies: 1}, true)
	if n := s.take(1, true); n != 0 {
		t.Errorf("%d further copies", n)
	}
	s.add(1, stray{copies: 2}, false)
	s.remove(1)
	if n := s.take(1, false); n != 1 {
		t.Errorf("%d further copies, want 1", n)
	}
	s.add(1, stray{nil, 2, 3, 1}, false)
	if s.remove(1); len(s.of) != 0 || len(s.behind) != 0 {
		t.Errorf("%v are left", s)
	}
}

// TestStraysAreBounded: a publisher whose blocks never have the one before them fills no memory.
func TestStraysAreBounded(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()[:1]))
	for i := range uint64(maxStrays + 100) {
		ev := x.f.stored(a, TierGPU, x.all()[2:3])
		ev.Hashes[0], ev.Parent = 1<<50+i, 1<<51
		x.send(a, inc, ev)
	}
	sh := x.allShards()[0]
	if n := len(sh.info[0].strays.of); n != maxStrays {
		t.Errorf("%d strays, want %d", n, maxStrays)
	}
	x.send(a, x.Begin(a), x.f.stored(a, TierGPU, x.all()[:1]))
	if slot, ok := sh.slots.Of(int32(x.ID(a))); !ok || len(sh.info[slot].strays.of) > 0 {
		t.Error("strays of a former life are left")
	}
}
