package decision

import (
	"slices"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/prefixhash"
)

// of counts the sent messages with a statement.
func (c *colleagues) of(kind Statement) (n int) {
	for _, p := range c.told {
		if p.Statement == kind {
			n++
		}
	}
	return n
}

// TestADepartureIsToldOnce: where a text went is sent as it is learned, and a
// replica's departure once, by a router that has something to forget and was not
// told of it before.
func TestADepartureIsToldOnce(t *testing.T) {
	all := replicas(2)
	for i := range all {
		all[i].Events = nil
	}
	r, out := newRig(t, policy.Config{}, all...), new(colleagues)
	r.decider.o.Peers = out
	text := chained{blocks: []int{1, 2, 3, 4, 5, 6, 7, 8}}.keys()
	ask := func() (home string) {
		t.Helper()
		d := r.decider.Decide(&Ask{Model: "m", Text: text, TextTokens: len(text) * prefixhash.TextUnit}, new(Work))
		d.Reservation.Answered(200)
		d.Reservation.Release()
		return first(d)
	}
	r.decider.Find("m", "") // the replicas have accounts
	r.decider.Forget(all[0].Addr)
	if len(out.told) != 0 {
		t.Errorf("told of a departure before anything was learned: %+v", out.told)
	}
	r.fleet.Set(all...) // it is back
	home := ask()
	if n := out.of(Observed); n != 1 || !slices.Equal(out.told[0].Keys, text) || out.told[0].Holder.Replica != home {
		t.Errorf("%d texts told: %+v", n, out.told)
	}
	r.decider.Forget(home)
	r.decider.Forget(home)
	if n := out.of(Invalidated); n != 1 {
		t.Errorf("a departure that two sources report was told %d times", n)
	}
	r.wait(time.Second)
	r.fleet.Set(all...)
	home = ask()
	out.told = nil
	r.decider.Receive(Prefix{Statement: Invalidated, Holder: index.Holder{Replica: home}}) // another router saw it first
	if d := r.decider.Decide(&Ask{Model: "m", Text: text, TextTokens: len(text) * prefixhash.TextUnit}, new(Work)); d.Reason != ReasonLearnedCold {
		t.Errorf("after another router told of the departure: %s", d.Reason)
	} else {
		r.decider.Receive(Prefix{Statement: Invalidated, Holder: index.Holder{Replica: home}})
		d.Reservation.Release()
	}
	r.decider.Forget(home)
	if n := out.of(Invalidated); n != 0 {
		t.Errorf("what another router told was told again, %d times", n)
	}
}
