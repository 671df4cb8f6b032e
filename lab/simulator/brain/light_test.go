package brain

import (
	"testing"

	"warmroute/internal/decision/policy"
	"warmroute/lab/simulator"
)

// runLight runs a light load with a rival, or with this router at a price of space.
func runLight(t testing.TB, l *simulator.Light, rival string, space float64, seed uint64) simulator.Result {
	trace, cfg := l.Trace(seed), l.Config(seed)
	switch {
	case rival == "pooled":
		cfg.Pooled, cfg.Policy = true, simulator.Rivals["oracle"]
	case rival != "":
		cfg.Policy = simulator.Rivals[rival]
	default:
		p, err := NewPolicy(Options{Replicas: l.Replicas, Block: trace.Block, Capacity: l.Capacity, Seed: seed,
			Policy: policy.Config{Overrides: policy.Overrides{TTFT: policy.Constants{"space": &space}}}})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Policy = func(*simulator.Sim) simulator.Policy { return p }
	}
	return simulator.New(cfg, trace, 1).Run()
}

// TestLightLoadsUseEveryCache: 24 sessions that share a head and grow fit in three caches, but
// not in one. Without a price of space one cache gets them all.
func TestLightLoadsUseEveryCache(t *testing.T) {
	for _, inFlight := range []int{1, 4} {
		l := &simulator.Light{Replicas: 3, InFlight: inFlight, Sessions: 24, Head: 512, Own: 272, Growth: 138, Turns: 8, Aligned: true, Capacity: 16_384, Requests: 24 * 8}
		sticky := runLight(t, l, "sticky", 0, 1)
		free, got := runLight(t, l, "", 0, 1), runLight(t, l, "", 1, 1)
		t.Logf("%d in flight: hit rate %.3f, without a price %.3f, sticky sessions %.3f", inFlight, got.Hit, free.Hit, sticky.Hit)
		if got.Hit < 0.95*sticky.Hit {
			t.Errorf("%d in flight: hit rate %.3f, that of sticky sessions %.3f", inFlight, got.Hit, sticky.Hit)
		}
	}
}
