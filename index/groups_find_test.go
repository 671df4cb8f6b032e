package index

import (
	"fmt"
	"testing"
	"time"

	"warmroute/render/testkit/must"
)

// newGrouped makes an index with one holder that has 20 blocks of a prompt in its full attention and in
// a window.
func newGrouped(t *testing.T) (x *Index, h Holder, p tokensPrompt) {
	x, h, p = newGroups(t, nil), Holder{Replica: "a:1"}, somePrompt(20*groupBlock+1)
	must.Get(x.Apply(&Batch{Holder: h, Incarnation: x.Begin(h), Events: fullAndWindow(p[:20*groupBlock], 0)}))(t)
	return x, h, p
}

// In a scope without a block size hits are found in tokens, and in no blocks.
func TestHitsWithoutABlockSize(t *testing.T) {
	x, _, p := newGrouped(t)
	keys := p.AppendChain(nil, Keying{Unit: groupBlock})
	s := groupSpace
	s.BlockSize = 0
	var f Found
	x.FindPrompt(&f, s, keys, p)
	if all := f.AppendTo(nil); len(all) != 1 || all[0].Hit != 20*groupBlock || all[0].Blocks != 0 {
		t.Errorf("%+v, want a hit of %d tokens", all, 20*groupBlock)
	}
}

// Each of many holders without full attention is answered once, also beside holders with blocks in
// other places than the GPU. A holder that no rule answers for proves nothing.
func TestEachHolderIsAnsweredOnce(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		x := newGroups(t, nil)
		p := somePrompt(20*groupBlock + 1)
		keys := p.AppendChain(nil, Keying{Unit: groupBlock})
		for i := range 130 {
			h := Holder{Replica: fmt.Sprint(i)}
			events := fullAndWindow(p[:20*groupBlock], 0)
			events[0].Scope.Scheme, events[0].Content = SchemeTokens, events[1].Content
			events[1].Spec = "mamba"
			must.Get(x.Apply(&Batch{Holder: h, Incarnation: x.Begin(h), Events: events}))(t)
		}
		last := Holder{Replica: "last"}
		if elsewhere {
			lend(t, x, groupSpace, last, keys, time.Now().Add(time.Hour))
		}
		var f Found
		x.FindPrompt(&f, groupSpace, keys, p)
		seen := map[HolderID]bool{}
		for m := range f.All() {
			if want := m.ID == x.ID(last); m.Grouped == want || want && m.Blocks != 20 || !want && m.Hit != 20*groupBlock {
				t.Errorf("%+v", m)
			}
			seen[m.ID] = true
		}
		if n := f.Len(); n != len(seen) || elsewhere && n != 131 || !elsewhere && n != 130 {
			t.Errorf("%d matches of %d holders", n, len(seen))
		}
	}
}

// The blocks below the GPU of a holder whose groups decide are no hits, so a prompt does not find them;
// keys alone do.
func TestGroupsDecideBelowTheGPU(t *testing.T) {
	x, h, p := newGrouped(t)
	x.SetGroups(h.Replica, &GroupSettings{EagleKnown: true})
	inc, _ := x.Resume(h)
	below := fullAndWindow(p[:20*groupBlock], 0)[1]
	gone := Event{Kind: Removed, Scope: Scope{Group: 1}, Hashes: below.Hashes}
	below.Tier = TierCPU
	must.Get(x.Apply(&Batch{Holder: h, Incarnation: inc, Events: []Event{below, gone}}))(t)
	s, keys := groupSpace, p.AppendChain(nil, Keying{Unit: groupBlock})
	s.Group = 1
	var f Found
	x.FindPrompt(&f, s, keys, p)
	for m := range f.All() {
		if m.Lower != 0 || m.Hit != 0 {
			t.Errorf("a prompt finds %+v", m)
		}
	}
	if all := x.Lookup(nil, s, keys); len(all) != 1 || all[0].Lower != 20 || all[0].Blocks != 0 {
		t.Errorf("keys find %+v, want 20 blocks below the GPU", all)
	}
}

// A batch with events of two models makes a member of each.
func TestABatchOfTwoModels(t *testing.T) {
	x, p := newGroups(t, nil), somePrompt(20*groupBlock)
	h := Holder{Replica: "a:1"}
	events := append(fullAndWindow(p, 0), fullAndWindow(p, 0)...)
	for i := range events[2:] {
		events[2+i].Scope.Model = "other"
	}
	events[2].Spec, events[2].Window = "mamba", 0
	must.Get(x.Apply(&Batch{Holder: h, Incarnation: x.Begin(h), Events: events}))(t)
	for model, want := range map[string]string{"m": "full attention 16 + sliding window 16/w64", "other": "full attention 16 + Mamba state 16"} {
		s := groupSpace
		s.Model = model
		if g, ok := x.ExplainGroups(x.ID(h), s, nil); !ok || g.Geometry != want {
			t.Errorf("model %q: %q, %v, want %q", model, g.Geometry, ok, want)
		}
	}
}

// A caller that asks in a group without full attention finds the holders' hits once each, beside a holder
// that has the group alone, and in place of their leases there.
func TestAnswersReplaceMatches(t *testing.T) {
	for _, reported := range []int{0, 1, 70} {
		x := newGroups(t, nil)
		p := somePrompt(20*groupBlock + 1)
		keys := p.AppendChain(nil, Keying{Unit: groupBlock})
		for i := range 130 {
			h := Holder{Replica: fmt.Sprint(i)}
			must.Get(x.Apply(&Batch{Holder: h, Incarnation: x.Begin(h), Events: fullAndWindow(p[:20*groupBlock], 0)}))(t)
			if i < reported {
				lend(t, x, groupSpace, h, keys[:3], time.Now().Add(time.Hour))
			}
		}
		alone := Holder{Replica: "alone"}
		must.Get(x.Apply(&Batch{Holder: alone, Incarnation: x.Begin(alone), Events: fullAlone(p[:5*groupBlock])}))(t)
		var f Found
		x.FindPrompt(&f, groupSpace, keys, p)
		seen := map[HolderID]bool{}
		for m := range f.All() {
			if other := m.ID == x.ID(alone); m.Grouped == other || other && m.Blocks != 5 || !other && (m.Hit != 20*groupBlock || m.Blocks != 20) {
				t.Errorf("%d reported: %+v", reported, m)
			}
			seen[m.ID] = true
		}
		if n := f.Len(); n != 131 || len(seen) != n {
			t.Errorf("%d reported: %d matches of %d holders, want 131", reported, n, len(seen))
		}
	}
}
