package brain

import (
	"slices"
	"testing"

	"warmroute/internal/decision/policy"
	"warmroute/lab/simulator"
)

// TestLoadsArePriced: with CPU memory too slow to help, prices that first tokens show are clearly
// better than a token set to be worth 0.75 of one on the GPU; with fast memory and with stores they
// are not worse. So near saturation one seed alone moves a row by a third, so that the mean of
// several counts: a fast store's may then still be 5 % off.
func TestLoadsArePriced(t *testing.T) {
	hw := simulator.H100()
	hw.Capacity = 150_000 // most prompts come back after their blocks were evicted
	constant := 0.25 * hw.PrefillToken
	var traces [4]*simulator.Trace
	var rates [len(traces)]float64
	for i := range traces {
		trace := simulator.Synthetic(2500, uint64(i)+1)
		trace.Requests = slices.DeleteFunc(trace.Requests, func(r simulator.Request) bool { return r.Input+r.Output > hw.Capacity })
		traces[i], rates[i] = trace, 0.9*simulator.Saturation(trace, simulator.Config{Replicas: 4, Hardware: hw})
	}
	for _, tt := range []struct {
		name   string
		token  float64 // s
		shared bool
		most   float64 // of the constant's mean time
	}{
		{"slow CPU memory", 100e-6, false, 0.7},
		{"fast CPU memory", 2.4e-6, false, 1.06},
		{"slow store", 100e-6, true, 1},
		{"fast store", 2.4e-6, true, 1.1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var ours, theirs float64
			for seed, trace := range traces {
				rate, seed := rates[seed], uint64(seed)
				run := func(set policy.Constants) float64 {
					p, err := NewPolicy(Options{Replicas: 4, Block: simulator.Block, Store: tt.shared, Policy: policy.Config{Overrides: policy.Overrides{TTFT: set}}})
					if err != nil {
						t.Fatal(err)
					}
					return simulator.New(simulator.Config{
						Replicas: 4, Hardware: hw, Seed: seed + 1, Policy: func(*simulator.Sim) simulator.Policy { return p },
						Tier: simulator.Tier{Capacity: 8 * hw.Capacity, Token: tt.token, Shared: tt.shared},
					}, trace, rate).Run().Mean
				}
				ours += run(nil)
				theirs += run(policy.Constants{"load_token": &constant})
			}
			if t.Logf("mean %.3f s, by a constant %.3f s", ours/4, theirs/4); ours > tt.most*theirs {
				t.Errorf("%.2f times the constant's time, want %.2f", ours/theirs, tt.most)
			}
		})
	}
}
