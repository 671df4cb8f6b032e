package index

import (
	"testing"

	"warmroute/prefixhash"
)

// Two holders may have blocks of one key behind different blocks, although engines' hashes are
// keys here, and one of the two has made a mistake: each is found behind its own.
func TestABlockBehindTwoBlocks(t *testing.T) {
	x := newFixture(t, Options{})
	x.f.scope.Scheme = "engine"
	stored := func(hash uint64, parents ...uint64) Event {
		ev := Event{Kind: Stored, Scope: x.f.scope, Hashes: []uint64{hash}}
		for _, parent := range parents {
			ev.HasParent, ev.Parent = true, parent
		}
		return ev
	}
	x.send(a, x.Begin(a), stored(1), stored(5, 1), stored(7, 1))
	x.send(b, x.Begin(b), stored(2), stored(7, 2))
	for first, want := range map[prefixhash.Key]Holder{1: a, 2: b} {
		all := x.Lookup(nil, x.f.scope, []prefixhash.Key{first, 7})
		if len(all) != 1 || all[0].ID != x.ID(want) || all[0].Blocks != 2 {
			t.Errorf("behind %d: %+v, want two blocks of %v", first, all, want)
		}
	}
	x.sound()
}

// A chain that is longer than a node, in several events, is found in full.
func TestChainsBeyondANode(t *testing.T) {
	for _, first := range []int{1, 100, 16384, 20000} {
		x := newFixture(t, Options{})
		x.f.scope.Scheme = "engine"
		ev := x.blocksOf(1, 40000)
		ev.Content = nil
		start, rest := ev, ev
		start.Hashes, rest.Hashes = ev.Hashes[:first], ev.Hashes[first:]
		rest.HasParent, rest.Parent = true, ev.Hashes[first-1]
		if res := x.send(a, x.Begin(a), start, rest); res.Stored != 40000 {
			t.Errorf("%+v, want all stored", res)
		}
		if err := x.check(); err != nil {
			t.Errorf("%d blocks, and the others: %v", first, err)
		}
	}
}

// Events of a tier that there is not are dropped, and so are removals there.
func TestTiersThatThereAreNot(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()[:4]))
	for _, ev := range []Event{x.f.stored(a, tiers, x.all()[:3]), x.f.removed(a, tiers, 1, 2, 3)} {
		if res := x.send(a, inc, ev); res != (Result{Dropped: 3}) {
			t.Errorf("%+v, want 3 dropped", res)
		}
	}
	x.wantReported(a, 4)
}

// Groups beyond the bound are stored, and are no member's.
func TestGroupsBeyondTheBound(t *testing.T) {
	for group, follows := range map[int]bool{MaxGroups - 1: true, MaxGroups: false, MaxGroups + 1: false, -1: false} {
		x := newFixture(t, Options{})
		x.f.scope.Group = group
		inc := x.Begin(a)
		if res := x.send(a, inc, x.f.stored(a, TierGPU, x.all()), x.f.removed(a, TierGPU, 63)); res.Stored != 64 || res.Removed != 1 {
			t.Errorf("group %d: %+v", group, res)
		}
		if m := x.memberOf(x.ID(a), x.f.scope.modelKey()); m == nil {
			t.Errorf("group %d: no member", group)
		} else if _, ok := m.Trust(); ok != follows {
			t.Errorf("group %d is a member's: %v", group, ok)
		}
	}
}
