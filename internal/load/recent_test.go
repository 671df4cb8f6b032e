package load

import (
	"testing"
	"time"
)

// TestRecentWork: what an account was sent counts less and less, and a charge on another one not at
// all.
func TestRecentWork(t *testing.T) {
	r := newRig(t)
	for range 3 {
		c := r.put(one, Terms{Expected: 1e9})
		r.Lock()
		c.Noted(2, 0, 0)
		r.Unlock()
		r.wait(recentTime)
	}
	want := 1/2.718281828 + 1/7.389056099 + 1/20.08553692 // e, e², e³
	if s := r.state(one); !near(s.Recent, 2*want) || !near(s.RecentRequests, want) {
		t.Errorf("%g s in %g requests, want %g in %g", s.Recent, s.RecentRequests, 2*want, want)
	}
	r.wait(era)
	if s := r.state(one); !near(1e14*s.Recent, 1.266416554909418*2*want) {
		t.Errorf("32 times that time later %g s", s.Recent) // e³²
	}
	r.wait(time.Hour)
	if s := r.state(one); s.Recent > 1e-9 || s.RecentRequests > 1e-9 {
		t.Errorf("after an hour %g s in %g requests", s.Recent, s.RecentRequests)
	}
	if s := r.state(two); s.Recent != 0 || s.RecentRequests != 0 {
		t.Errorf("another one: %g s in %g requests", s.Recent, s.RecentRequests)
	}
}
