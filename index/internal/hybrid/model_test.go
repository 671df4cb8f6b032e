package hybrid

import (
	"fmt"
	"testing"
)

// TestSeatsAreUsedAgainLate: a seat is free for as long as 64 others before it is used again,
// and members that are looked up by the rule are listed.
func TestSeatsAreUsedAgainLate(t *testing.T) {
	g := newTestModel()
	window := func(id int32) *Member {
		m, _ := newMember(g, id, known)
		apply(m, Keying{}, windowEvent) // of windows alone: by the rule
		return m
	}
	var members []*Member
	for id := range int32(130) {
		members = append(members, window(id))
	}
	for i, m := range members[:64] {
		equal(t, "seat", m.Seat(), i)
		m.End()
		equal(t, "after its end", m.Seat(), -1)
		m.End() // nothing
	}
	equal(t, "64 are free", window(200).Seat(), 130)
	members[64].End()
	equal(t, "65 are free", window(201).Seat(), 0)
	r := g.roster.Load()
	for seat, m := range r.members {
		equal(t, fmt.Sprint("seat ", seat, " is listed"), r.ruled[seat>>6]>>(seat&63)&1 != 0, m != nil)
	}
	equal(t, "words", len(r.ruled), 3)
}

// TestPlansAreShared: members with equal layouts and settings have one plan.
func TestPlansAreShared(t *testing.T) {
	g := newTestModel()
	plan := func(s *Settings, events ...Event) *Plan {
		m, _ := newMember(g, 1, s)
		apply(m, Keying{}, events...)
		return m.plan.Load()
	}
	full, window := seen(0, 16, "full_attention", 0), seen(1, 16, "sliding_window", 64)
	base := plan(known, full, window)
	equal(t, "equal", plan(known, full, window) == base, true)
	wider := window
	wider.Window = 80
	for name, other := range map[string]*Plan{
		"another window": plan(known, full, wider),
		"other drops":    plan(&Settings{EagleKnown: true, Eagle: 1}, full, window),
		"another rule":   plan(&Settings{EagleKnown: true, Rule: Rule027}, full, window),
	} {
		equal(t, name, other == base, false)
	}
	for window := range maxPlans + 10 {
		wide := seen(1, 16, "sliding_window", 1000+window)
		plan(known, full, wide)
	}
	equal(t, "plans are bounded", len(g.plans), maxPlans)
}

// TestBudget: blocks beyond it are not kept, and make predictions inexact; blocks that are
// removed have room for others.
func TestBudget(t *testing.T) {
	b := &Budget{Max: 3}
	g := newModel(b)
	m, _ := newMember(g, 1, known)
	event := windowEvent.with(hashesOf(16, 16, 32, 48, 64))
	event.Keys = true
	apply(m, Keying{}, fullEvent, event)
	equal(t, "kept", b.Used(), 3)
	equal(t, "room", b.take(), false)
	trust, _ := m.Trust()
	equal(t, "exact", trust.Exact, false)
	for range 2 { // the second removal finds nothing
		m.Removed(0, hashesOf(16, 16, 64))
		equal(t, "after a removal", b.Used(), 2)
	}
	m.Stored(&event)
	equal(t, "again", b.Used(), 3)
	m.Clear(false)
	equal(t, "cleared", b.Used(), 0)
	trust, _ = m.Trust()
	equal(t, "exact once it keeps all of its blocks", trust.Exact, true)
}

// TestCopiesAreCounted: a block is held until all its copies are removed, in each group.
func TestCopiesAreCounted(t *testing.T) {
	g := newTestModel()
	m, h := newMember(g, 1, known)
	one := hashesOf(16, 16)
	apply(m, Keying{}, windowEvent, fullEvent)
	m.Stored(&Event{Group: 0, Block: 16, Hashes: one})
	m.Stored(&Event{Group: 0, Block: 16, Hashes: one})
	m.Stored(&Event{Group: 0, Block: 16, Hashes: one})
	m.Stored(&Event{Group: 1, Block: 16, Hashes: one})
	for i, want := range []bool{true, true, false, false} {
		m.Removed(0, one)
		equal(t, fmt.Sprint("in group 0 after ", i+1), m.held.has(groupHash{0, one[0]}), want)
		equal(t, "in group 1", m.held.has(groupHash{1, one[0]}), true)
	}
	equalAll(t, "the shard settles changes of group 0", h.settled, []uint64{one[0], one[0]})
	m.Removed(1, one)
	equal(t, "blocks", len(m.held.groups), 0)
}

// TestAssumptionsKeepTheSeat: other assumptions keep the seat, another layout does not.
func TestAssumptionsKeepTheSeat(t *testing.T) {
	g := newTestModel()
	m, _ := newMember(g, 1, nil)
	apply(m, Keying{}, windowEvent, fullEvent)
	equal(t, "seat", m.Seat(), 0)
	m.Configure(&Settings{EagleKnown: true, Eagle: 3})
	equal(t, "with other assumptions", m.Seat(), 0)
	equal(t, "drops", m.joined.Load().assumed.Eagle, uint32(3))
	apply(m, Keying{}, seen(2, 16, "mamba", 0))
	equal(t, "with another layout", m.Seat(), 1)
	apply(m, Keying{}, seen(0, 16, "sliding_window", 128))
	equal(t, "and a third", m.Seat(), 2)
	equal(t, "attached", m.Attached(1), true)
	m.Configure(&Settings{EagleKnown: true, Eagle: 1})
	equal(t, "by the rule, too", m.Seat(), 2)
	equal(t, "listed", g.roster.Load().ruled[0], uint64(4))
	equal(t, "attached by the rule", m.Attached(1), false)
	plain, _ := newMember(g, 2, known)
	apply(plain, Keying{}, fullEvent.in(0))
	equal(t, "full attention alone has no seat", plain.Seat(), -1)
	equal(t, "is not grouped", plain.Grouped(), false)
	plain.Configure(&Settings{EagleKnown: true, Eagle: 1})
	equal(t, "unless it drops a block", plain.Seat() >= 0 && plain.Attached(0) && plain.Grouped(), true)
	plain.Configure(known)
	equal(t, "and again", plain.Seat(), -1)
	elsewhere, _ := newMember(g, 3, known)
	apply(elsewhere, Keying{}, fullEvent)
	equal(t, "nor unless it is another group", elsewhere.Seat() >= 0, true)
}
