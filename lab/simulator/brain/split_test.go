package brain

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"warmroute/internal/decision/policy"
	"warmroute/lab/simulator"
)

// settings returns a policy with this price of answers.
func settings(t *testing.T, theta float64) (c policy.Config) {
	t.Helper()
	c.PrefillDecode = policy.Apart{"theta": &theta}
	return c
}

// TestLowLoadIsNotSplit: where only the first token counts and all replicas may do both,
// nothing is split at low load; with a price for answers the router splits where replicas
// are apart, and more requests meet their limits than by any rule.
func TestLowLoadIsNotSplit(t *testing.T) {
	trace, hw := simulator.PrefillHeavy(1500, 1), simulator.H100()
	rate := simulator.Saturation(trace, simulator.Config{Replicas: 4, Hardware: hw})
	c := simulator.Config{Replicas: 4, Hardware: hw, Handover: 0.1, Bandwidth: 75_000, Seed: 1}
	ours := func(theta, load float64, prefill int) simulator.Result {
		p, err := NewPolicy(Options{Replicas: 4, Block: simulator.Block, Policy: settings(t, theta), Split: true, Prefill: prefill})
		if err != nil {
			t.Fatal(err)
		}
		c.Policy = func(*simulator.Sim) simulator.Policy { return p }
		return simulator.New(c, trace, load*rate).Run()
	}
	if r := ours(0, 0.3, 0); r.Split > 0 {
		t.Errorf("%d of %d are split", r.Split, len(r.Served))
	}
	r := ours(0.8, 0.5, 2)
	for rule := range simulator.Rules {
		c.Policy = simulator.Ruled(rule, 2)
		other := simulator.New(c, trace, 0.5*rate).Run()
		if a, b := r.Goodput(&hw, 0.05), other.Goodput(&hw, 0.05); a < 0.98*b {
			t.Errorf("%s: %.3f meet their limits, warmroute %.3f", rule, b, a)
		}
	}
}

// TestSplitsInTheProtocol: a request that waits behind a long one gets a replica that
// computes its prompt.
func TestSplitsInTheProtocol(t *testing.T) {
	in := `{"type":"init","replicas":2,"block_tokens":512,"split":true,"prefill":1}
{"type":"route","t":1,"id":1,"input_tokens":60000,"blocks":[1]}
{"type":"route","t":1,"id":2,"input_tokens":20000,"blocks":[2]}
{"type":"prefilled","t":2,"id":2}
{"type":"done","t":3,"id":2}
`
	var out bytes.Buffer
	if err := Run(context.Background(), strings.NewReader(in), &out, Options{}); err != nil {
		t.Fatal(err)
	}
	var answers []map[string]int
	for line := range strings.Lines(out.String()) {
		var a map[string]int
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	if len(answers) != 2 || answers[0]["replica"] != 1 || len(answers[0]) != 1 || answers[1]["replica"] != 1 || len(answers[1]) != 2 || answers[1]["prefill"] != 0 {
		t.Errorf("%v", answers)
	}
}
