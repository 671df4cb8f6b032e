package index

import (
	"testing"
	"time"

	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// fullAlone is a step that stores a prompt in a cache of full attention alone.
func fullAlone(p tokensPrompt) []Event {
	ev := fullAndWindow(p, 0)[1]
	ev.Scope.Group = 0
	return []Event{ev}
}

// TestReports: where full attention is alone, whose blocks are in the nodes, a run from a
// prompt's start is a report of a hit, or of blocks that were computed again.
func TestReports(t *testing.T) {
	x := newGroups(t, time.Now)
	h := Holder{Replica: "a"}
	x.SetGroups(h.Replica, &GroupSettings{EagleKnown: true})
	life := x.Begin(h)
	apply := func(events ...Event) {
		t.Helper()
		must.Get(x.Apply(&Batch{Holder: h, Incarnation: life, Events: events}))(t)
	}
	remove := func(p tokensPrompt) {
		t.Helper()
		for _, ev := range fullAlone(p) {
			apply(Event{Kind: Removed, Scope: Scope{Group: ev.Scope.Group}, Hashes: ev.Hashes})
		}
	}
	long, one := somePrompt(3*groupBlock), somePrompt(groupBlock)
	hits := func(what string, want int32, exact bool) {
		t.Helper()
		m := findOne(t, x, h, append(somePrompt(3*groupBlock), 1))
		if hit := max(m.Hit, m.Blocks*groupBlock); hit != want {
			t.Errorf("%s: hits %d tokens, want %d", what, hit, want)
		}
		if trust, _ := x.Trust(x.ID(h), "", "m"); trust.Exact != exact {
			t.Errorf("%s: %+v", what, trust)
		}
	}

	apply(fullAlone(one)...)
	apply(fullAlone(one)...)
	remove(one)
	hits("a prompt of one block, computed twice, one copy gone", groupBlock, true)
	remove(one)
	hits("both gone", 0, true)

	apply(fullAlone(one)...)
	apply(fullAlone(one)...) // a copy or a report: counted
	apply(fullAlone(long)...)
	remove(long)
	remove(one)
	hits("two of three copies gone", groupBlock, true)
	remove(one)

	apply(fullAlone(one)...)
	apply(fullAlone(one)...)
	apply(fullAlone(long)...)
	apply(fullAlone(long)...) // a report: a prompt of three blocks hits two
	hits("reported", 3*groupBlock, true)
	remove(long)
	remove(one)
	hits("what may have been a report is taken back", 0, false)
	apply(fullAlone(one)...)
	apply(fullAlone(one)...)
	remove(one)
	hits("the holder reports, so this may have been a report too", 0, false)
	apply(Event{Kind: Cleared})
	apply(fullAlone(one)...)
	hits("cleared, and stored once", groupBlock, true)
}

// TestHashesThatLookAhead: where a block's hash covers the tokens behind it, the block
// is found only if the prompt goes on as it did, and nobody drops one, whatever is set. In SGLang
// these tokens must come before the last one, too. An explanation has the same hit.
func TestHashesThatLookAhead(t *testing.T) {
	p := somePrompt(4*groupBlock + 3)
	events := fullAlone(p[:4*groupBlock])
	events[0].Ahead = 2
	events[0].Content = prefixhash.AppendContents(nil, p[:4*groupBlock+2], prefixhash.Blocks{Size: groupBlock, Ahead: 2}, nil)
	other := append(append(tokensPrompt{}, p[:4*groupBlock+1]...), 7, 7)
	early := append(append(tokensPrompt{}, p[:3*groupBlock+2]...), somePrompt(40)...)
	for name, c := range map[string]struct {
		p           tokensPrompt
		hit, sglang int
	}{"goes on": {p, 4, 4}, "just so far": {p[:4*groupBlock+2], 4, 3}, "too short": {p[:4*groupBlock+1], 3, 3}, "goes on otherwise": {other, 3, 3}, "parts in the fourth block": {early, 3, 3}} {
		for rule, want := range map[GroupRule]int{GroupRule032: c.hit, GroupRuleSGLang: c.sglang} {
			x, h := newGroups(t, time.Now), Holder{Replica: "a"}
			x.SetGroups(h.Replica, &GroupSettings{Rule: rule, Eagle: 1, EagleKnown: true})
			must.Get(x.Apply(&Batch{Holder: h, Incarnation: x.Begin(h), Events: events}))(t)
			m := findOne(t, x, h, c.p)
			g, _ := x.ExplainGroups(x.ID(h), groupSpace, c.p)
			if want *= groupBlock; int(m.Hit) != want || g.Hit != want {
				t.Errorf("%s: hits %+v, explained as %d, want %d", name, m, g.Hit, want)
			}
			if trust, _ := x.Trust(x.ID(h), "", "m"); !trust.Exact {
				t.Errorf("%+v", trust)
			}
		}
	}
}
