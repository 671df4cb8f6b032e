package index

import (
	"testing"
	"time"

	"warmroute/render/testkit/must"
)

// TestGroupsAreCounted: the blocks of cache groups have a bound and take memory, which
// goes with them. Blocks beyond the bound make predictions inexact, and holders get less
// credit, not more.
func TestGroupsAreCounted(t *testing.T) {
	x := New(Options{Now: time.Now, MaxBlocks: 40})
	defer x.Close()
	a, b := Holder{Replica: "a"}, Holder{Replica: "b"}
	p := somePrompt(30*groupBlock + 1)
	life := x.Begin(a)
	must.Get(x.Apply(&Batch{Holder: a, Incarnation: life, Events: fullAndWindow(p[:30*groupBlock], 20)}))(t)
	st := x.counts()
	if st.Grouped != 30 || findOne(t, x, a, p).Hit != 30*groupBlock {
		t.Errorf("%d blocks counted, %+v", st.Grouped, findOne(t, x, a, p))
	}
	must.Get(x.Apply(&Batch{Holder: b, Incarnation: x.Begin(b), Events: fullAndWindow(p[:30*groupBlock], 0)}))(t)
	if got := x.counts(); got.Grouped != 40 {
		t.Errorf("%d blocks counted, want 40", got.Grouped)
	}
	if m := findOne(t, x, b, p); m.Hit > 10*groupBlock {
		t.Errorf("more is credited than is kept: %+v", m)
	}
	x.SetGroups(b.Replica, &GroupSettings{EagleKnown: true})
	if trust, _ := x.Trust(x.ID(b), "", "m"); trust.Exact {
		t.Errorf("what is not kept is called exact: %+v", trust)
	}
	must.Get(x.Apply(&Batch{Holder: a, Incarnation: life, Events: []Event{{Kind: Cleared}}}))(t)
	if got := x.counts().Grouped; got != 10 {
		t.Errorf("%d blocks counted after a clear, want 10", got)
	}
	x.Remove(b.Replica)
	if got := x.counts().Grouped; got != 0 {
		t.Errorf("%d blocks counted at the end", got)
	}
}

// A closed index finds nothing in the tables of a cache with several groups, whose memory is gone,
// for lookups and writers that know the holder too.
func TestAClosedIndexHasNoGroups(t *testing.T) {
	x := New(Options{Now: time.Now})
	h, p := Holder{Replica: "a"}, somePrompt(5000*groupBlock+1)
	events := fullAndWindow(p[:5000*groupBlock], 0)
	events[1].Spec = "sliding_window_mla" // two windows: lookups read the table
	events[1].Window = 128
	events[1].Scope.Group = 1
	x.SetGroups(h.Replica, &GroupSettings{EagleKnown: true})
	must.Get(x.Apply(&Batch{Holder: h, Incarnation: x.Begin(h), Events: events}))(t)
	explain := func() int {
		g, _ := x.ExplainGroups(x.ID(h), groupSpace, p)
		return g.Hit
	}
	if n := explain(); n != 5000*groupBlock {
		t.Fatalf("%d tokens are hit", n)
	}
	x.Close()
	if m, n := findOne(t, x, h, p), explain(); m.Hit != 0 || n != 0 {
		t.Errorf("a closed index hits %d and %d tokens", m.Hit, n)
	}
	x.SetGroups(h.Replica, &GroupSettings{EagleKnown: true, Eagle: 1})
	x.Remove(h.Replica)
}
