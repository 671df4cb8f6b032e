package agents

import (
	"testing"

	"warmroute/lab/simulator"
	"warmroute/lab/simulator/brain"
)

// TestTimeAfterAnAnswer: a session is kept for its next request where a return within that time saves
// more prefill than the wait costs, and not before a hundred intervals are known.
func TestTimeAfterAnAnswer(t *testing.T) {
	p := &progress{o: &Options{Rate: 1000}}
	if got := p.ttl(8000); got != 0 {
		t.Errorf("%g s before any interval is known", got)
	}
	for range windowLength {
		p.intervals.add(5)
	}
	if got := p.ttl(8000); got < 5 || got > 8 {
		t.Errorf("%g s where a return after 5 s saves 8", got)
	}
	if got := p.ttl(4000); got != 0 {
		t.Errorf("%g s where a return after 5 s saves 4", got)
	}
}

// TestProgressAdmits: what fits; what does not waits, and comes back when another session is paused, or
// at its deadline.
func TestProgressAdmits(t *testing.T) {
	p := &progress{o: &Options{Rate: 1000, Tokens: 10_000}, sessions: map[int]*program{}}
	ask := func(now float64, id, session int) int {
		return p.Route(now, &simulator.Request{ID: id, Session: session, Input: 6000, Output: 1})
	}
	if ask(0, 1, 1) != 0 || ask(0, 2, 2) != brain.Held {
		t.Fatal("two sessions of 6,000 tokens are active in 10,000")
	}
	if ids := p.Wake(1); len(ids) != 0 {
		t.Fatalf("%v come back", ids)
	}
	if ids := p.Wake(1 + forceMost); len(ids) != 1 || ids[0] != 2 || ask(301, 2, 2) != 0 {
		t.Fatalf("%v come back at the deadline", ids)
	}
	if ask(302, 3, 3) != brain.Held {
		t.Fatal("a third one is active")
	}
	for id := 1; id <= 2; id++ {
		p.Done(303, &simulator.Request{ID: id, Session: id, Input: 6000, Output: 1})
	}
	if ids := p.Wake(304); len(ids) != 1 || ids[0] != 3 {
		t.Errorf("%v come back after the others were paused", ids)
	}
}

// TestGrowthOfContexts: from answer to answer, where it rises.
func TestGrowthOfContexts(t *testing.T) {
	p := &progress{o: &Options{Rate: 1000, Tokens: 100_000}, sessions: map[int]*program{}}
	for i, input := range []int{6000, 6900, 3000, 3400} {
		r := &simulator.Request{ID: i, Session: 1, Input: input, Output: 100}
		p.Route(float64(i), r)
		p.Done(float64(i), r)
	}
	if len(p.growth) != 2 || p.growth[0] != 900 || p.growth[1] != 400 {
		t.Errorf("%v, want 900 and 400", p.growth)
	}
}
