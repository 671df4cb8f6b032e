package index

import (
	"testing"
	"time"
)

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
		x.Report(x.f.scope, x.ID(a), x.f.key, x.clock.t.Add(time.Minute))
		m := x.match(a)
		if hybrid := group == 1; m.HybridUnknown != hybrid || group > 0 && m.Blocks != 0 || group == 0 && m.Blocks != 64 {
			t.Errorf("after group %d: %+v", group, m)
		}
	}
}
