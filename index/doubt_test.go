package index

import (
	"strings"
	"testing"

	"warmroute/render/testkit/must"
)

// TestADoubtMakesMatchesUpperBounds: once a batch has a doubt, the matches of its holder are upper
// bounds in every model, also in one that is named later, until the holder begins anew. Other
// holders stay as they are, and a snapshot leaves the holder out.
func TestADoubtMakesMatchesUpperBounds(t *testing.T) {
	x := newFixture(t, Options{})
	for _, h := range []Holder{a, b} {
		x.SetGroups(h.Replica, &GroupSettings{EagleKnown: true})
	}
	exact := func(h Holder, model string) (bool, string) {
		g, ok := x.Trust(x.ID(h), "", model)
		return ok && g.Exact, g.Why
	}
	stored := func(model string) Event {
		e := x.f.stored(a, TierGPU, []int{0, 1})
		e.Scope.Model, e.Spec = model, "full_attention"
		return e
	}
	ia, ib := x.Begin(a), x.Begin(b)
	x.send(a, ia, stored("m"))
	x.send(b, ib, stored("m"))
	if is, why := exact(a, "m"); !is {
		t.Fatalf("not exact before: %s", why)
	}
	must.Get(x.Apply(&Batch{Holder: a, Incarnation: ia, Doubt: "events of a kind"}))(t)
	x.send(a, ia, stored("later"), Event{Kind: Cleared}, stored("m"))
	for _, model := range []string{"m", "later"} {
		is, why := exact(a, model)
		if trust, _ := x.Trust(x.ID(a), "", model); is || !strings.Contains(why, "events of a kind") || !trust.Above {
			t.Errorf("model %s: exact %v, because %q", model, is, why)
		}
	}
	if is, _ := exact(b, "m"); !is {
		t.Error("another holder is in doubt")
	}
	if !x.Grouped(a) || x.Grouped(b) {
		t.Errorf("left out of snapshots: %v and %v, want the one in doubt alone", x.Grouped(a), x.Grouped(b))
	}
	x.send(a, x.Begin(a), stored("m"))
	if is, why := exact(a, "m"); !is || x.Grouped(a) {
		t.Errorf("still in doubt after it began anew: %s", why)
	}
}
