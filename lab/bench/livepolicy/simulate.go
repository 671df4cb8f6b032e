package main

import (
	"warmroute/internal/decision/policy"
	"warmroute/lab/simulator"
	"warmroute/lab/simulator/brain"
	"warmroute/lab/stage"
)

// contender is one policy, through Envoy and in the simulation.
type contender struct {
	name string
	kind policy.Name // "": Envoy alone
}

// contenders begin with the baseline.
var contenders = []contender{{name: "least_request"}, {"filter-then-score", policy.NameBalance}, {"ttft", policy.NameTTFT}}

// settings returns the router's settings for engines that compute rate tokens per second.
// An operator of such engines would set them, too: they keep the default proportions of
// the score's times, without a cost of attention, which these engines do not model.
func (c contender) settings(rate float64) policy.Overrides {
	def := policy.DefaultTTFT()
	token, pair := 1/rate, 0.0
	decode := def.DecodeToken / def.PrefillToken * token
	return policy.Overrides{RoutePolicy: &c.kind, TTFT: map[string]*float64{"prefill_token": &token, "prefill_pair": &pair, "decode_token": &decode}}
}

// hardware is the fleet's engine in the simulation's tokens, of which simulator.Block
// make a block.
func hardware(f stage.Fleet) simulator.Hardware {
	scale := float64(simulator.Block) / float64(f.BlockSize)
	return simulator.Hardware{
		PrefillToken: 1 / f.PrefillRate / scale,
		Step:         1 / f.DecodeRate,
		Budget:       int(float64(f.StepTokens) * scale),
		Sequences:    256, // vLLM's default
		Capacity:     (f.Blocks - 1) * simulator.Block,
	}
}

// simulate runs the trace through the simulation and counts every request.
func simulate(f stage.Fleet, c contender, t *simulator.Trace, rate float64, seed uint64) (simulator.Result, error) {
	cfg := simulator.Config{Replicas: f.Replicas, Hardware: hardware(f), Seed: seed, Warm: 1e-9, Policy: simulator.Rivals["p2c"]}
	if c.kind != "" {
		settings := policy.Config{Overrides: c.settings(1 / cfg.Hardware.PrefillToken)}
		p, err := brain.NewPolicy(brain.Options{Replicas: f.Replicas, Block: simulator.Block, Seed: seed, Policy: settings})
		if err != nil {
			return simulator.Result{}, err
		}
		cfg.Policy = func(*simulator.Sim) simulator.Policy { return p }
	}
	return simulator.New(cfg, t, rate).Run(), nil
}
