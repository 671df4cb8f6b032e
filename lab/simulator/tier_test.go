package simulator

import (
	"math"
	"testing"
)

// TestLoadsTakeTheirTime: a prompt whose blocks have left the GPU is loaded, one request after
// the other, and only its last token is computed; in a shared store, on any replica.
func TestLoadsTakeTheirTime(t *testing.T) {
	for _, shared := range []bool{false, true} {
		b := NewBuilder("one")
		b.Add(0, 4*Block, 1, []int64{1, 2, 3, 4})
		b.Add(10, 4*Block, 1, []int64{5, 6, 7, 8}) // evicts them from the GPU
		b.Add(20, 4*Block, 1, []int64{1, 2, 3, 4})
		hw := H100()
		hw.Capacity = 4*Block + page
		const token = 1e-4
		s := New(Config{Replicas: 1, Hardware: hw, Policy: Rivals["p2c"], Tier: Tier{Capacity: 100 * Block, Token: token, Shared: shared}}, b.Trace(), 0.15)
		s.Run()
		r := s.requests[2]
		want := token*(4*Block-1) + hw.Step + hw.Weights + hw.PrefillPair*(4*Block-1+0.5) + hw.Sequence
		if r.Hit != 4*Block-1 || math.Abs(r.First-r.At-want) > 1e-9 {
			t.Errorf("shared %v: first token after %g s with %d cached tokens, want %g s", shared, r.First-r.At, r.Hit, want)
		}
		d := s.engines[0].Scheduler.(*dense)
		if d.lower.loaded != 4*Block-1 || len(d.loading) != 0 || d.cache.free != d.cache.pages {
			t.Errorf("shared %v: %g tokens loaded, %d still loading, %d pages free", shared, d.lower.loaded, len(d.loading), d.cache.free)
		}
	}
}
