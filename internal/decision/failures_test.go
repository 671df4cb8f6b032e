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
