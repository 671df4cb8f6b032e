package index

import (
	"slices"
	"testing"

	"warmroute/render/testkit/must"
)

// drawn is a replica of the example that the comment of package hybrid draws.
type drawn struct {
	Holder
	blocks int   // of full attention
	window []int // the blocks of the window

	depth, hit, full int32 // of the prompt that is looked up
}

var pageExample = []drawn{
	{Holder: Holder{Replica: "A"}, blocks: 8, window: []int{2, 3, 6, 7}, depth: 6, hit: 64, full: 96},
	{Holder: Holder{Replica: "B"}, blocks: 5, window: []int{3, 4}, depth: 5, hit: 80, full: 80},
}

// events store the blocks that the comment draws: the window is group 0, full attention
// group 1.
func (r *drawn) events(p tokensPrompt) []Event {
	events := fullAndWindow(p[:r.blocks*groupBlock], 0)
	names := events[0].Hashes
	events[0].Window, events[0].Hashes = 2*groupBlock, nil
	for _, i := range r.window {
		events[0].Hashes = append(events[0].Hashes, names[i])
	}
	return events
}

// TestThePageExample performs the lookup of the comment.
func TestThePageExample(t *testing.T) {
	x, held := newGroups(t, nil), somePrompt(8*groupBlock) // a0 … a7
	asked := append(slices.Clone(held), 1, 2)              // 130 tokens
	for i := 6 * groupBlock; i < len(asked); i++ {
		asked[i]++ // b6 b7
	}
	for _, r := range pageExample {
		must.Get(x.Apply(&Batch{Holder: r.Holder, Incarnation: x.Begin(r.Holder), Events: r.events(held)}))(t)
	}
	keys := asked.AppendChain(nil, Keying{Unit: groupBlock})
	if found := x.Lookup(nil, groupSpace, keys); len(found) != 0 {
		t.Errorf("the nodes of group 0 have %v", found)
	}
	full := groupSpace
	full.Group = 1
	depths := x.Lookup(nil, full, keys)
	for _, r := range pageExample {
		if !slices.ContainsFunc(depths, func(m Match) bool { return m.ID == x.ID(r.Holder) && m.Blocks == r.depth }) {
			t.Errorf("%s: the nodes of group 1 have %v, want %d blocks", r.Replica, depths, r.depth)
		}
		if m := findOne(t, x, r.Holder, asked); m.Hit != r.hit || m.Full != r.full {
			t.Errorf("%s: Hit %d, Full %d, want %d and %d", r.Replica, m.Hit, m.Full, r.hit, r.full)
		}
	}
}
