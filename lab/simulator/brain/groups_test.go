package brain

import (
	"testing"

	"warmroute/lab/simulator"
	"warmroute/lab/simulator/hybrid"
)

// predicting notes a Brain's prediction of every request, and compares.
type predicting struct {
	grouped
	predicted      map[int]int
	equal, more, n int
}

func (p *predicting) Route(now float64, r *simulator.Request) int {
	to := p.grouped.Route(now, r)
	p.predicted[r.ID] = p.b.work.Record.Predicted
	return to
}

func (p *predicting) First(now float64, r *simulator.Request) {
	p.n++
	switch predicted := p.predicted[r.ID]; {
	case predicted == r.Hit:
		p.equal++
	case predicted > r.Hit:
		p.more++
	}
	p.grouped.First(now, r)
}

// TestEveryGroupIsPredicted: with all groups followed, predictions equal hits; by full
// attention alone they are higher at times.
func TestEveryGroupIsPredicted(t *testing.T) {
	trace := simulator.Synthetic(1500, 1)
	for name, m := range hybrid.Models {
		hw := m.Hardware(simulator.H100())
		cfg := simulator.Config{Replicas: 4, Hardware: hw, Seed: 1, Scheduler: func() simulator.Scheduler { return m.New(hw) }}
		rate := 0.8 * simulator.Saturation(trace, cfg)
		judge := func(g Groups) *predicting {
			p, err := NewPolicy(Options{Replicas: 4, Block: simulator.Block, Groups: g})
			if err != nil {
				t.Fatal(err)
			}
			judged := &predicting{grouped: p.(grouped), predicted: map[int]int{}}
			cfg.Policy = func(*simulator.Sim) simulator.Policy { return judged }
			res := simulator.New(cfg, trace, rate).Run()
			t.Logf("%s, view %d: %d of %d as predicted, %d predicted too high; hit %.3f, mean %.3f s", name, g, judged.equal, judged.n, judged.more, res.Hit, res.Mean)
			if judged.n != 1500 {
				t.Errorf("%s: %d of 1500 requests had a first token", name, judged.n)
			}
			return judged
		}
		if every := judge(EveryGroup); every.equal < every.n*99/100 {
			t.Errorf("%s: %d of %d as predicted", name, every.equal, every.n)
		}
		if full := judge(FullGroup); full.more < full.n/100 {
			t.Errorf("%s: full attention alone predicts too much %d times of %d, so groups make no difference here", name, full.more, full.n)
		}
	}
}
