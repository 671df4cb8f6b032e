package brain

import (
	"fmt"
	"math"
	"testing"

	"warmroute/internal/decision/policy"
	"warmroute/lab/simulator"
)

// runLight runs a light load with a rival, or with this router at a price of space.
func runLight(t testing.TB, l *simulator.Light, rival string, space float64, seed uint64) simulator.Result {
	trace, cfg := l.Trace(seed), l.Config(seed)
	if cfg.Policy = simulator.Rivals[rival]; rival == "" {
		p, err := NewPolicy(Options{Replicas: l.Replicas, Block: trace.Block, Capacity: l.Capacity, Seed: seed,
			Policy: policy.Config{Overrides: policy.Overrides{TTFT: policy.Constants{"space": &space}}}})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Policy = func(*simulator.Sim) simulator.Policy { return p }
	}
	return simulator.New(cfg, trace, 1).Run()
}

// BenchmarkLightLoads prints what a price of space changes on light loads, by the requests in
// flight: the geometric mean and the worst of the mean times to first token over those without
// it, and the hit rates. Decision 130 has its figures.
func BenchmarkLightLoads(b *testing.B) {
	for _, inFlight := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprint(inFlight), func(b *testing.B) {
			for range b.N {
				lightCells(b, inFlight)
			}
		})
	}
}

// lightCells runs the cells with so many requests in flight.
func lightCells(b *testing.B, inFlight int) {
	ratio, sticky, worst, cells := 0.0, 0.0, 0.0, 0.0
	var hit [3]float64
	for _, replicas := range []int{2, 3, 8} {
		for _, head := range []int{512, 4096} {
			for _, fits := range simulator.LightFits {
				for _, shuffled := range []bool{false, true} {
					l := &simulator.Light{Replicas: replicas, InFlight: inFlight, Sessions: 8 * replicas, Head: head, Own: 272, Growth: 138, Turns: 8, Shuffled: shuffled, Requests: 8 * replicas * 40}
					l.Fit(fits)
					free, got, best := runLight(b, l, "", 0, 1), runLight(b, l, "", 1, 1), runLight(b, l, "sticky", 0, 1)
					ratio, sticky, cells = ratio+math.Log(got.Mean/free.Mean), sticky+math.Log(best.Mean/free.Mean), cells+1
					worst = max(worst, got.Mean/free.Mean)
					hit[0], hit[1], hit[2] = hit[0]+free.Hit, hit[1]+got.Hit, hit[2]+best.Hit
				}
			}
		}
	}
	b.ReportMetric(math.Exp(ratio/cells), "ttft")
	b.ReportMetric(math.Exp(sticky/cells), "ttft-sticky")
	b.ReportMetric(worst, "ttft-worst")
	b.ReportMetric(hit[0]/cells, "hit-without")
	b.ReportMetric(hit[1]/cells, "hit")
	b.ReportMetric(hit[2]/cells, "hit-sticky")
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
