package simulator

import (
	"math"
	"testing"
)

// TestASplitTakesWhatTheModelSays: the prompt takes its time on one replica, the move its
// own, and the first token one step more on the other; what was moved is cached on both.
func TestASplitTakesWhatTheModelSays(t *testing.T) {
	b := NewBuilder("two")
	b.Add(0, 1024, 3, []int64{1, 2})
	b.Add(100, 1024, 1, []int64{1, 2})
	hw := H100()
	c := Config{Replicas: 2, Hardware: hw, Policy: Ruled("always", 1), Handover: 0.1, Bandwidth: 10_240}
	s := New(c, b.Trace(), 0.02)
	s.Run()
	first, second := s.requests[0], s.requests[1]
	if first.Prefill != 0 || first.Replica != 1 {
		t.Fatalf("the prompt on %d, the answer on %d", first.Prefill, first.Replica)
	}
	step := hw.Step + hw.Weights + hw.PrefillPair*(1023+0.5) + hw.Sequence
	if want := hw.Step + hw.Prefill(1024, 0) + hw.Sequence + 0.1 + 0.1 + step; math.Abs(first.First-want) > 1e-9 {
		t.Errorf("first token after %g s, want %g", first.First, want)
	}
	if want := step + 0.1 + 1/10_240. + step; second.Hit != 1023 || math.Abs(second.First-second.At-want) > 1e-9 {
		t.Errorf("a full hit on both: %d cached, first token after %g s, want %g", second.Hit, second.First-second.At, want)
	}
}

// TestEverySplitEnds: under every rule the engines are left with nothing, and a replica for
// prompts alone answers nothing.
func TestEverySplitEnds(t *testing.T) {
	trace := PrefillHeavy(600, 1)
	for rule := range Rules {
		s, res := simulate(trace, Config{Policy: Ruled(rule, 2), Handover: 0.1, Bandwidth: 75_000}, 0.7)
		for _, r := range s.requests {
			if !(r.First > r.At && r.Done >= r.First) || r.Replica < 2 || r.Prefill >= 2 {
				t.Fatalf("%s: request %+v", rule, r)
			}
		}
		for i, e := range s.engines {
			if d := e.Scheduler.(*dense); d.cache.free != d.cache.pages || d.active() != 0 || len(d.waiting) != 0 {
				t.Errorf("%s: replica %d ends with %d of %d pages free, %d running", rule, i, d.cache.free, d.cache.pages, d.active())
			}
		}
		if (res.Split > 0) != (rule != "never") {
			t.Errorf("%s: %d split", rule, res.Split)
		}
	}
}

// TestPrefillsDelayAnswers: chunked prefills beside answers lengthen the time for each token.
func TestPrefillsDelayAnswers(t *testing.T) {
	trace := PrefillHeavy(600, 1)
	hw := H100()
	_, apart := simulate(trace, Config{Policy: Ruled("always", 2), Bandwidth: 75_000}, 0.3)
	_, beside := simulate(trace, Config{Policy: Ruled("never", 0)}, 0.3)
	if a, b := apart.Goodput(&hw, 0.015), beside.Goodput(&hw, 0.015); a < b+0.05 {
		t.Errorf("within 15 ms for each token: %.2f apart, %.2f beside each other", a, b)
	}
}
