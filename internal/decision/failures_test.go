package decision

import (
	"testing"
	"time"

	"warmroute/internal/decision/policy"
)

// TestRequestsThatEndEarlyBlameNoReplica: what a client can cause, by a request that is refused at
// once or that it gives up, shows nothing of the replica; nor do the statuses of clients' errors.
func TestRequestsThatEndEarlyBlameNoReplica(t *testing.T) {
	for _, status := range []int{0, 400, 413, 429, 499} {
		r := newRig(t, policy.Config{}, replicas(2)...)
		p := prompt(1, 0, 100)
		r.stored("10.0.0.2:8000", p)
		for i := range 40 {
			d, _ := r.ask(prompt(1, i+1, 400)) // it begins as p does
			r.wait(time.Millisecond)
			d.Reservation.Answered(status)
			d.Reservation.Release()
		}
		d, rec := r.ask(p)
		if c := candidate(t, rec, "10.0.0.2:8000"); c.Failing || first(d) != "10.0.0.2:8000" {
			t.Errorf("status %d: failing: %v, %s is named", status, c.Failing, first(d))
		}
	}
}

// TestAQuickAnswerFromTheCacheIsNoFailure: a wholly cached prompt with an answer
// of one token stores nothing and may end within a millisecond.
func TestAQuickAnswerFromTheCacheIsNoFailure(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(2)...)
	p := prompt(1, 0, 100)
	warm := "10.0.0.2:8000"
	r.stored(warm, p)
	for i := range 6 {
		d, _ := r.ask(p)
		if first(d) != warm {
			t.Fatalf("request %d went to %s", i, first(d))
		}
		r.wait(time.Millisecond)
		d.Reservation.Release()
	}
}

// TestAQuickAnswerWhereNothingIsReportedIsNoFailure: the text chain knows the
// first 16 KiB of a conversation that is cached as a whole, or nothing of it.
func TestAQuickAnswerWhereNothingIsReportedIsNoFailure(t *testing.T) {
	reps := replicas(2)
	for i := range reps {
		reps[i].Events = nil
	}
	r := newRig(t, policy.Config{}, reps...)
	text := chained{blocks: []int{1, 2, 3, 4, 5, 6, 7, 8}}.keys()
	for i := range 10 {
		w := new(Work)
		d := r.decider.Decide(&Ask{Model: "m", Text: text, TextTokens: 25600}, w)
		for _, c := range w.Record.Candidates {
			if c.State.Failing {
				t.Fatalf("before request %d %s counts as failing", i, c.Replica)
			}
		}
		r.wait(20 * time.Millisecond) // one engine step, which is seen to end without its status
		d.Reservation.Release()
	}
}
