package filter

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/render/testkit/must"
)

// TestARecordSaysTheSameAgain: for three hundred random decisions under random
// loads, the policy run once more on the ring's record, as decoded from JSON,
// names the same winner with the same scores; and the record that Explain returned
// right before equals the decision.
func TestARecordSaysTheSameAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	decisions, moved := 0, 0
	for run := range 20 {
		tok := fakeTokens{n: 100 + rng.IntN(4000)}
		var replicas []*fleet.Replica
		for n := range 1 + rng.IntN(12) {
			ranks := []int{0}
			if run%5 == 4 {
				ranks = []int{0, 1}
			}
			replicas = append(replicas, replica(n+1, ranks...))
		}
		clock := time.Unix(1_000_000, 0) // stands still between an explanation and its decision
		b := newBenchAt(t, func() time.Time { return clock }, tok, replicas...)
		if run%4 == 3 {
			kind := policy.NameBalance
			must.Get(b.book.Replace(policy.Config{Overrides: policy.Overrides{RoutePolicy: &kind}}))(t)
		}
		var leases []*decision.Reservation
		for range 15 {
			for _, r := range replicas {
				for _, rank := range r.Ranks {
					b.holds(r.Addr, rank, rng.IntN(1+tok.n/blockSize))
				}
			}
			clock = clock.Add(time.Duration(rng.IntN(2000)) * time.Microsecond)
			q := query()
			q.Pick = rng.IntN(3) == 0
			told := b.router.Explain(context.Background(), q)
			d := b.route(q)
			if told.Reason != d.Reason || told.Chosen != d.Chosen {
				t.Fatalf("explained %s %q, decided %s %q", told.Reason, told.Chosen, d.Reason, d.Chosen)
			}
			checkAgain(t, b, d)
			decisions++
			if d.Reason == decision.ReasonMoved || d.Reason == decision.ReasonGuarded {
				moved++
			}
			if d.Reservation != nil {
				leases = append(leases, d.Reservation)
			}
			for len(leases) > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(len(leases))
				leases[i].Release()
				leases = append(leases[:i], leases[i+1:]...)
			}
		}
	}
	if decisions != 300 || moved < 15 {
		t.Errorf("%d decisions, %d of them against the longest match: not what this test is for", decisions, moved)
	}
}

func checkAgain(t *testing.T, b *bench, d decision.Decision) {
	t.Helper()
	text := must.Get(json.Marshal(b.last()))(t)
	var rec decision.Record
	must.Do(t, json.Unmarshal(text, &rec))
	scores, winner := rec.Rescore(b.book.Of("m"))
	if winner < 0 {
		if d.Chosen != "" {
			t.Fatalf("no winner, but %q was chosen", d.Chosen)
		}
		return
	}
	w := rec.Candidates[winner]
	if w.Replica != d.First() || d.Rank != "" && d.Rank != fmt.Sprint(w.Rank) {
		t.Fatalf("%s rank %d wins again, %q rank %q was chosen", w.Replica, w.Rank, d.Chosen, d.Rank)
	}
	for i := range scores {
		if scores[i] != rec.Candidates[i].Score {
			t.Fatalf("candidate %d: %+v again, %+v recorded", i, scores[i], rec.Candidates[i].Score)
		}
	}
}

// TestExplainLeavesNoTrace: no load, no speculation, no record, no count.
func TestExplainLeavesNoTrace(t *testing.T) {
	b := newBench(t, fakeTokens{n: 1000}, replica(1), replica(2))
	b.holds("10.0.0.2:8000", 0, 40)
	for range 3 {
		rec := b.router.Explain(context.Background(), query())
		if rec.Reason != decision.ReasonWarm || rec.Chosen != "10.0.0.2:8000,10.0.0.1:8000" || rec.Predicted != 640 || rec.Source != "body" || len(rec.Candidates) != 2 {
			t.Fatalf("explained %+v", rec)
		}
		if c := rec.Candidates[1].State; c.InFlight != 0 || c.Pending != 0 || c.Match.Matched() != c.Match.Cached() {
			t.Fatalf("an explanation was charged: %+v", c)
		}
	}
	if last := b.ring.Last(1, nil); len(last) != 0 {
		t.Errorf("an explanation was recorded: %+v", last)
	}
	b.route(query())
	if n := b.last().Input.Ordinal; n != 1 {
		t.Errorf("the first decision has number %d: explanations took some", n)
	}
}
