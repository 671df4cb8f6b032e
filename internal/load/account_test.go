package load

import (
	"testing"
	"time"
)

// TestAheadOfLateNews: where news come a second late, the engine is taken to have worked
// through its queue since, in order, at its speed, but not past the point that even late
// news would have reported.
func TestAheadOfLateNews(t *testing.T) {
	r := newRig(t)
	a := r.Of(one)
	terms := Terms{Model: 49e7, Expected: 98e7, Sentinel: 1} // a second each, with its step, at speed 2
	r.put(one, terms)
	terms.Sentinel = 2
	r.put(one, terms)
	r.put(one, Terms{Model: 49e7, Expected: 98e7}) // no event will tell of it
	want := func(awaiting int, pending float64) {
		t.Helper()
		if s := r.state(one); s.Awaiting != awaiting || !near(s.Pending, pending) {
			t.Errorf("at %v: %d await with %g s, want %d with %g", r.now.Sub(time.Unix(1_700_000_000, 0)), s.Awaiting, s.Pending, awaiting, pending)
		}
	}
	want(3, 2.94) // reports come at once: work that is not reported is still to be done
	r.wait(500 * time.Millisecond)
	want(3, 2.94)
	a.pace.lag.Store(1)
	want(3, 0.5+0.98+0.98)
	r.wait(time.Second) // 1.5
	want(2, 0.5+0.98)
	r.wait(time.Second) // 2.5: the first came at 1.5 at the soonest, or it would be known
	want(1, 0.98)
	r.wait(500 * time.Millisecond) // 3.0
	want(1, 0.98)
	r.wait(1) // news of the first are overdue, so it stands still
	want(3, 3*0.98)
	a.pace.reported = r.nanos()
	r.stored(one, 1) // it came a second ago
	r.wait(10 * time.Millisecond)
	want(1, 0.98)
	a.pace.last.Store(r.nanos() - 5e8)
	want(2, 0.5+0.98)
}
