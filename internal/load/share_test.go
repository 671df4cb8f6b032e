package load

import (
	"maps"
	"slices"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
)

// TestShares: other routers' requests in flight count besides this router's, by the
// latest message of each router, until it reports none.
func TestShares(t *testing.T) {
	r := newRig(t)
	a := r.Of(one)
	r.put(one, Terms{Expected: 1e9, Tokens: 10})
	if s := a.Share(r.now); s != (Share{Requests: 1, Awaiting: 1, Pending: 1e9, Live: 10, Sent: 1, Work: 1e9}) {
		t.Errorf("ours: %+v", s)
	}
	b, c := Share{Requests: 2, Awaiting: 1, Pending: 2e9, Live: 20}, Share{Requests: 4, Awaiting: 3, Pending: 4e9, Live: 40, Failing: 1e9}
	a.SetShare("b", Share{Requests: 99, Pending: 99}, r.now)
	a.SetShare("b", b, r.now)
	a.SetShare("c", c, r.now)
	if s := r.state(one); s != (policy.Load{InFlight: 7, Awaiting: 5, Pending: 7, Live: 70, Failing: true}) {
		t.Errorf("together: %+v", s)
	}
	if s := a.Share(r.now); s.Requests != 1 {
		t.Errorf("others' requests are told as ours: %+v", s)
	}
	if got := a.Others(); !maps.Equal(got, map[string]Share{"b": b, "c": c}) {
		t.Errorf("others: %v", got)
	}
	r.wait(time.Second)
	if r.state(one).Failing {
		t.Error("a last resort for longer than the other router said")
	}
	a.SetShare("c", Share{}, r.now)
	if s := r.state(one); s.InFlight != 3 || len(a.Others()) != 1 {
		t.Errorf("one has nothing any more: %+v, %v", s, a.Others())
	}
	for _, s := range []Share{{Requests: 1}, {Awaiting: 1}, {Pending: 1}, {Live: 1}, {Failing: 1}} {
		if a.SetShare("d", s, r.now); a.Others()["d"] != s {
			t.Errorf("%+v is forgotten", s)
		}
	}
	a.SetShare("d", Share{Failing: 2e9}, r.now) // the sooner of two ends does not count
	a.SetShare("e", Share{Failing: 1e9}, r.now)
	r.wait(time.Second)
	if !r.state(one).Failing {
		t.Error("the later of two ends counts")
	}
}

// TestChanged: every changed account is reported once; accounts that change meanwhile
// are reported once more.
func TestChanged(t *testing.T) {
	r := newRig(t)
	if got := r.Changed(nil, func(index.Holder, *Account) { t.Error("nobody watches") }); got != nil {
		t.Errorf("memory %v", got)
	}
	notified := 0
	r.OnChange(func() { notified++ })
	var told []index.Holder
	var spare []*Account
	tell := func() []index.Holder {
		told = nil
		spare = r.Changed(spare, func(h index.Holder, _ *Account) { told = append(told, h) })
		return told
	}
	step := func(name string, do func(), want ...index.Holder) {
		t.Helper()
		before := notified
		do()
		if got := tell(); !slices.Equal(got, want) || notified-before != len(want) {
			t.Errorf("%s: told of %v with %d notices, want %v", name, got, notified-before, want)
		}
	}
	var c, d *Charge
	step("nothing", func() {})
	step("two charges here, one there", func() {
		c = r.put(one, Terms{Expected: 1e9})
		r.put(one, Terms{})
		d = r.put(two, Terms{})
	}, one, two)
	step("nothing since", func() {})
	step("a first token", func() { c.FirstToken() }, one)
	step("it again", func() { c.FirstToken() })
	step("an end", func() { c.Release() }, one)
	step("that end again", func() { c.Release() })
	step("a failure", func() { d.account.failed(r.nanos()) }, two)
	step("a success that ends no penalty", func() { d.RecordEnd(200, true) })
	for range failStreak {
		d.account.failed(r.nanos())
	}
	tell()
	step("a success that ends one", func() { d.RecordEnd(200, true) }, two)
	d.FirstToken()
	again := 0
	spare = r.Changed(spare, func(index.Holder, *Account) {
		if again++; again == 1 {
			d.Release()
		}
	})
	if got := tell(); !slices.Equal(got, []index.Holder{two}) {
		t.Errorf("what changed while it was told: %v", got)
	}
}
