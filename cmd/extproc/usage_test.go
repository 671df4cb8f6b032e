package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/cmd/extproc/internal/outcome"
	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/decisiontest"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
)

// TestFailuresInTheAccessLog: the log's ends count for all ranks of the replica that failed or
// answered; what clients cause counts for nobody.
func TestFailuresInTheAccessLog(t *testing.T) {
	const one, two = "10.0.0.1:8000", "10.0.0.2:8000"
	l := load.NewLedger(nil)
	s := decisiontest.NewFleet(&fleet.Replica{Addr: one, Ranks: []int{0, 1}}, &fleet.Replica{Addr: two, Ranks: []int{0}}).Snapshot()
	at := []*load.Account{l.Of(index.Holder{Replica: one}), l.Of(index.Holder{Replica: one, Rank: 1}), l.Of(index.Holder{Replica: two})}
	for _, step := range []struct {
		what string
		a    outcome.Answer
		want [3]int // failures in a row
	}{
		{"a failure", outcome.Answer{Replica: one, Failed: one, Status: 500}, [3]int{1, 1, 0}},
		{"a client's error", outcome.Answer{Replica: one, Status: 400}, [3]int{1, 1, 0}},
		{"a client that left", outcome.Answer{}, [3]int{1, 1, 0}},
		{"a retry", outcome.Answer{Hint: two + "," + one, Replica: one, PassedOver: true, Status: 400}, [3]int{1, 1, 1}},
		{"an answer", outcome.Answer{Replica: one, Status: 200}, [3]int{0, 0, 1}},
		{"a stranger", outcome.Answer{Failed: "10.9.9.9:1"}, [3]int{0, 0, 1}},
	} {
		learnHealth(l, s, &step.a)
		if got := [3]int{at[0].Failures(), at[1].Failures(), at[2].Failures()}; got != step.want {
			t.Errorf("%s: failures %v, want %v", step.what, got, step.want)
		}
	}
}

// TestUsageIsDrawn: as many numbers as the percentage says, and the same ones again.
func TestUsageIsDrawn(t *testing.T) {
	const numbers = 100_000
	var u usageShare
	for _, percent := range []int{0, 1, 10, 100} {
		u.Set(percent)
		n, both := 0, 0
		for seq := range uint64(numbers) {
			if !u.draws(seq) {
				continue
			}
			if n++; u.draws(seq + 1) {
				both++
			}
		}
		want, pairs := numbers*percent/100, numbers*percent*percent/10_000
		if n < want*9/10 || n > want*11/10 || both < pairs*7/10 || both > pairs*13/10+10 {
			t.Errorf("%d percent: %d drawn of %d, %d of them before another", percent, n, numbers, both)
		}
	}
}

// TestUnableReplicasAreNoted: those that are passed over, and those that choose ranks themselves,
// one of them because the access log tells of its refusal.
func TestUnableReplicasAreNoted(t *testing.T) {
	refuses := &fleet.Replica{Addr: "10.0.0.1:1", Ready: true, Ranks: []int{0, 1}}
	s := fleet.NewSnapshot(refuses,
		&fleet.Replica{Addr: "10.0.0.2:1", Ready: true, Ranks: []int{0, 1}},
		&fleet.Replica{Addr: "10.0.0.3:1", Ready: true, Ranks: []int{2, 3}, FirstRank: -1},
		&fleet.Replica{Addr: "10.0.0.4:1", Held: true, Why: "asleep: it is", Ranks: []int{0}},
		&fleet.Replica{Addr: "10.0.0.5:1", Why: "unreachable: it is"})
	r, err := newRouter(defaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	r.decider = decision.New(snapshotOf{s}, r.index, r.ledger, r.book, decision.Options{})
	for _, a := range []outcome.Answer{
		{Replica: "10.0.0.2:1", Rank: "1", Status: 400, Told: true}, {Replica: "10.0.0.2:1", Status: 400}, {Replica: "10.0.0.2:1", Rank: "1", Status: 200},
		{Replica: refuses.Addr, Rank: "1", Status: 400},
	} {
		r.learn(&a)
	}
	got := strings.Join(r.unableReplicas(s), "\n")
	want := "replica 10.0.0.1:1 gets no x-data-parallel-rank: it has refused one, or does not say how it counts ranks\n" +
		"replica 10.0.0.3:1 gets no x-data-parallel-rank: it has refused one, or does not say how it counts ranks\n" +
		"replica 10.0.0.4:1 is passed over: asleep: it is"
	if got != want {
		t.Errorf("notes:\n%s\nwant\n%s", got, want)
	}
}

// snapshotOf is a fleet that does not change.
type snapshotOf struct{ s *fleet.Snapshot }

func (f snapshotOf) Snapshot() *fleet.Snapshot { return f.s }
