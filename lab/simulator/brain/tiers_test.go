package brain

import (
	"testing"

	"warmroute/internal/decision/policy"
	"warmroute/lab/simulator"
)

// TestLoadsArePriced: with CPU memory too slow to help, learned prices are clearly better than
// a token set to be worth 0.75 of one on the GPU, whether the replicas count their loads or
// first tokens show them; with fast memory and with stores they are not worse.
func TestLoadsArePriced(t *testing.T) {
	trace := simulator.Synthetic(2500, 1)
	hw := simulator.H100()
	hw.Capacity = 150_000 // most prompts come back after their blocks were evicted
	constant := 0.25 * hw.PrefillToken
	rate := 0.9 * simulator.Saturation(trace, simulator.Config{Replicas: 4, Hardware: hw})
	run := func(set policy.Loads, token float64, shared, uncounted bool) simulator.Result {
		p, err := NewPolicy(Options{Replicas: 4, Block: simulator.Block, Store: shared, Uncounted: uncounted, Policy: policy.Config{Overrides: policy.Overrides{Tiers: set}}})
		if err != nil {
			t.Fatal(err)
		}
		return simulator.New(simulator.Config{
			Replicas: 4, Hardware: hw, Seed: 1, Policy: func(*simulator.Sim) simulator.Policy { return p },
			Tier: simulator.Tier{Capacity: 8 * hw.Capacity, Token: token, Shared: shared},
		}, trace, rate).Run()
	}
	for _, tt := range []struct {
		name              string
		token             float64 // s
		shared, uncounted bool
		most              float64 // of the constant's mean time
	}{
		{"slow CPU memory, counted", 100e-6, false, false, 0.9},
		{"slow CPU memory, by first tokens", 100e-6, false, true, 0.9},
		{"fast CPU memory", 2.4e-6, false, false, 1.06},
		{"slow store", 100e-6, true, false, 1.05},
		{"fast store", 2.4e-6, true, false, 1.03},
	} {
		ours := run(nil, tt.token, tt.shared, tt.uncounted)
		theirs := run(policy.Loads{"cpu": &constant, "storage": &constant, "shared": &constant}, tt.token, tt.shared, tt.uncounted)
		t.Logf("%s: mean %.3f s, by a constant %.3f s; hit %.2f and %.2f", tt.name, ours.Mean, theirs.Mean, ours.Hit, theirs.Hit)
		if ours.Mean > tt.most*theirs.Mean {
			t.Errorf("%s: mean %.3f s, by a constant %.3f s", tt.name, ours.Mean, theirs.Mean)
		}
	}
}
