package decision

import (
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
)

// TestRoutersShareSessions: a session that another router has sent leaves no room here, until that
// router tells its end, or is gone; a request that it holds, or held before its client left, comes
// before later ones here.
func TestRoutersShareSessions(t *testing.T) {
	set := policy.Sessions{Share: 1e-6}
	for _, gone := range []bool{false, true} {
		one, busy := crammed(t, set)
		two, others := crammed(t, set)
		told := new(colleagues)
		one.decider.o.Peers = told
		others.Release()
		two.wait(time.Hour) // its own session is no longer live
		cold := func(r *rig, family, blocks int) Decision {
			return r.decider.Decide(&Ask{Model: "m", Prompts: prompt(family, 0, blocks), MayHold: true}, new(Work))
		}
		small := cold(one, 5, 200)
		told.pass(t, two, Observed)
		seen, ok := two.decider.Working(index.Holder{Replica: "10.0.0.1:8000"})
		if !ok || seen.Live != 1 || seen.Context < 3200 {
			t.Fatalf("at work there: %+v", seen)
		}
		held := cold(one, 2, 800)
		if one.decider.WakeHeld(); held.Held == nil {
			t.Fatalf("%+v", held)
		}
		told.pass(t, two, Waiting)
		if d := cold(two, 3, 100); d.Held == nil || d.Held.Wait(two.now).Ahead != 1 {
			t.Errorf("a later request goes before one that the other router holds: %+v", d)
		}
		one.wait(time.Second)
		held.Held.Leave(one.now)
		one.decider.WakeHeld()
		told.pass(t, two, Kept, Waiting)
		retry := cold(two, 2, 800)
		if retry.Held != nil {
			t.Fatal("a retry waits at the other router behind a request that came after its first attempt")
		}
		retry.Reservation.Release()
		if two.decider.WakeHeld(); cold(two, 6, 100).Held == nil {
			t.Error("a later request goes before the first one here")
		}
		if gone {
			two.decider.Gone("")
		} else {
			small.Reservation.Answered(200)
			small.Reservation.Ended(true)
			small.Reservation.Release()
			told.pass(t, two, Ended)
		}
		if used, _ := two.decider.history.Of(index.Holder{Replica: "10.0.0.1:8000"}).Used(); used != 0 {
			t.Errorf("gone %v: %g tokens are in use where nothing is in flight", gone, used)
		}
		two.wait(time.Hour)
		two.decider.WakeHeld()
		if seen, _ := two.decider.Working(index.Holder{Replica: "10.0.0.1:8000"}); seen.Live != 0 {
			t.Errorf("gone %v: %+v", gone, seen)
		}
		busy.Release()
	}
	r := newRig(t, policy.Config{}, replicas(1)...)
	told := new(colleagues)
	r.decider.o.Peers = told
	r.ask(prompt(1, 0, 800))
	r.decider.WakeHeld()
	told.pass(t, r, Observed) // without holding no session is told
}
