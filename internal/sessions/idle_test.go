package sessions_test

import (
	"testing"
	"time"

	"warmroute/internal/sessions"
)

// TestSessionComesBack: a request tells how long its session was idle when it first came, and whether it
// was live then, also after it was held.
func TestSessionComesBack(t *testing.T) {
	o := open(t, 1)
	o.set.Share = 1e-6
	came := func(s *sent, idle float64, live bool) {
		t.Helper()
		if s.w.Idle != time.Duration(idle*1e9) || s.w.Live != live {
			t.Errorf("turn %d: idle for %v, live %v; want %g s, %v", s.w.Turn, s.w.Idle, s.w.Live, idle, live)
		}
	}
	name := func(x text) *sessions.Request {
		r := o.request(x)
		r.Session = 7
		return r
	}
	for i, idle := range []float64{0, 100, 130} { // it stays live for 120 s
		o.pass(idle)
		s, _, _ := o.ask(name(text{{1, 60_000}}))
		came(s, idle, i == 1)
		s.end()
	}
	busy := o.send(text{{2, 40_000}})
	o.pass(50)
	r := name(text{{3, 70_000}})
	_, r.Ticket, _ = o.ask(r)
	o.pass(100)
	busy.end()
	o.pass(200)
	s, held, _ := o.ask(r)
	if held != nil {
		t.Fatalf("it is held: %+v", held.Wait(o.now))
	}
	came(s, 50, true)
}
