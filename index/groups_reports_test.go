package index

import (
	"testing"
	"time"

	"warmroute/prefixhash"
)

// fullAlone is a step that stores a prompt in a cache of full attention alone.
func fullAlone(p tokensPrompt) []Event {
	ev := fullAndWindow(p, 0)[1]
	ev.Scope.Group = 0
	return []Event{ev}
}

// TestHashesThatLookAhead: where a block's hash covers the tokens behind it, the block
// is found only if the prompt goes on as it did, and nobody drops one, whatever is set.
func TestHashesThatLookAhead(t *testing.T) {
	x := newGroups(t, time.Now)
	h := Holder{Replica: "a"}
	x.SetGroups(h.Replica, &GroupSettings{Eagle: 1, EagleKnown: true})
	p := somePrompt(4*groupBlock + 3)
	events := fullAlone(p[:4*groupBlock])
	events[0].Ahead = 2
	events[0].Content = prefixhash.AppendContentsAhead(nil, p[:4*groupBlock+2], prefixhash.Blocks{Size: groupBlock, Ahead: 2}, nil)
	if _, err := x.Apply(&Batch{Holder: h, Incarnation: x.Begin(h), Events: events}); err != nil {
		t.Fatal(err)
	}
	other := append(append(tokensPrompt{}, p[:4*groupBlock+1]...), 7, 7)
	early := append(append(tokensPrompt{}, p[:3*groupBlock+2]...), somePrompt(40)...)
	for name, c := range map[string]struct {
		p   tokensPrompt
		hit int32
	}{"goes on": {p, 4}, "just so far": {p[:4*groupBlock+2], 4}, "too short": {p[:4*groupBlock+1], 3}, "goes on otherwise": {other, 3}, "parts in the fourth block": {early, 3}} {
		if m := findOne(t, x, h, c.p); m.Hit != c.hit*groupBlock {
			t.Errorf("%s: hits %+v, want %d blocks", name, m, c.hit)
		}
	}
	if trust, _ := x.Trust(x.ID(h), "", "m"); !trust.Exact {
		t.Errorf("%+v", trust)
	}
	keys := somePrompt(9*groupBlock).AppendChain(nil, Keying{Unit: groupBlock})
	x.Speculate(groupSpace, x.ID(h), keys, time.Now().Add(time.Hour))
	if m := findOne(t, x, h, somePrompt(9*groupBlock+5)); m.Coming != 9*groupBlock {
		t.Errorf("on its way: %+v", m)
	}
}
