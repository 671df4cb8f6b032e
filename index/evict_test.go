package index

import (
	"fmt"
	"testing"
	"time"

	"warmroute/prefixhash"
)

// blocksOf returns a Stored event of n blocks from a prompt's start. Each number has its own blocks.
func (x *fixture) blocksOf(number, n int) Event {
	ev := Event{Kind: Stored, Scope: x.f.scope}
	for i := range n {
		v := uint64(number+1)<<20 | uint64(i)
		ev.Hashes, ev.Content = append(ev.Hashes, v), append(ev.Content, prefixhash.Content(v))
	}
	return ev
}

// An eviction drops as many blocks as are needed, in a small scope, and no block before.
func TestEvictionsDropAsManyAsNeeded(t *testing.T) {
	x := newFixture(t, Options{MaxScopeBlocks: 40})
	inc := x.Begin(a)
	for i := range 20 {
		x.send(a, inc, x.blocksOf(i, 2))
	}
	if st := x.counts(); st.Blocks != 40 {
		t.Errorf("%d blocks at the bound", st.Blocks)
	}
	if n := x.Full(time.Hour); n != 0 {
		t.Errorf("full by %d blocks at the bound", n)
	}
	x.send(b, x.Begin(b), x.blocksOf(20, 5))
	if st := x.counts(); st.Blocks != 40 || x.Holdings(a) != 35 {
		t.Errorf("%d blocks, %d left, want 40, 35", st.Blocks, x.Holdings(a))
	}
	if now, later := x.Full(time.Minute), x.Full(0); now != 5 || later != 0 {
		t.Errorf("full by %d blocks, later by %d", now, later)
	}
	x.sound()
}

// A large scope evicts a share of its bound at once, so that evictions are rare, but none before
// the bound is reached.
func TestEvictionsDropAShare(t *testing.T) {
	const most = 10 * evictShare
	x := newFixture(t, Options{MaxScopeBlocks: most})
	inc := x.Begin(a)
	for i := range most / 2 {
		x.send(a, inc, x.blocksOf(i, 2))
	}
	if n := most - x.Holdings(a); n != 0 {
		t.Errorf("%d blocks are evicted at the bound", n)
	}
	x.send(a, inc, x.blocksOf(most, 1))
	if n := most + 1 - x.Holdings(a); n != most/evictShare {
		t.Errorf("%d blocks are evicted, want %d", n, most/evictShare)
	}
}

// Blocks that were stored longest ago are evicted first, however long ago that was.
func TestTheOldestBlocksAreEvicted(t *testing.T) {
	for _, old := range []time.Duration{2 * time.Minute, 18 * time.Minute, 19 * time.Minute, 5 * time.Hour, 24 * time.Hour} {
		x := newFixture(t, Options{MaxScopeBlocks: 20})
		early, late := Holder{Replica: "early"}, Holder{Replica: "late"}
		x.send(early, x.Begin(early), x.blocksOf(1, 10))
		x.clock.t = x.clock.t.Add(old)
		x.send(late, x.Begin(late), x.blocksOf(2, 10))
		x.clock.t = x.clock.t.Add(time.Minute)
		x.send(a, x.Begin(a), x.blocksOf(3, 4))
		if early, late := x.Holdings(early), x.Holdings(late); early != 6 || late != 10 {
			t.Errorf("after %v %d of the older blocks are left, and %d of the others", old, early, late)
		}
	}
}

// Blocks below the GPU are evicted if nodes have too few, as many as are needed. A
// second holder of the same blocks needs no room.
func TestLowerBlocksAreEvicted(t *testing.T) {
	for name, change := range map[string]func(ev *Event){
		"in memory":  func(ev *Event) { ev.Tier = TierCPU },
		"in storage": func(ev *Event) { ev.Tier = TierStorage },
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t, Options{MaxScopeBlocks: 40})
			x.f.scope.Scheme = "engine"
			event := func(number, n int) Event {
				ev := x.blocksOf(number, n)
				ev.Content = nil
				return ev
			}
			ev := event(1, 40)
			change(&ev)
			inca, incb := x.Begin(a), x.Begin(b)
			for _, inc := range []Result{x.send(a, inca, ev), x.send(b, incb, ev)} {
				if inc.Stored != 40 || inc.Dropped != 0 {
					t.Errorf("%+v, want 40 stored", inc)
				}
			}
			if st := x.counts(); st.Blocks != 40 {
				t.Errorf("%d blocks before there are more", st.Blocks)
			}
			if res := x.send(a, inca, event(2, 3)); res.Stored != 3 {
				t.Errorf("%+v, want 3 stored", res)
			}
			more := event(3, 2)
			change(&more)
			if res := x.send(a, inca, more); res.Stored != 2 {
				t.Errorf("%+v, want 2 stored", res)
			}
			if st := x.counts(); st.Blocks != 40 || x.TierHoldings(b, ev.Tier) > 37 {
				t.Errorf("%d blocks, %d left to another holder", st.Blocks, x.TierHoldings(b, ev.Tier))
			}
			x.sound()
			x.Sweep()
			if st := x.counts(); st.Hashes != x.TierHoldings(a, ev.Tier)+x.TierHoldings(b, ev.Tier)+x.Holdings(a) {
				t.Errorf("%d hashes after the sweep, of %d and %d blocks", st.Hashes, x.TierHoldings(a, ev.Tier), x.TierHoldings(b, ev.Tier))
			}
		})
	}
}

// Hashes of blocks that are evicted below the GPU stay until a sweep, or until they are half as many
// as there are blocks and some.
func TestHashesOfEvictedBlocksAreForgotten(t *testing.T) {
	const most = 1000
	x := newFixture(t, Options{MaxScopeBlocks: most})
	inc := x.Begin(a)
	next := func(number int) {
		ev := x.blocksOf(number, 1)
		ev.Tier = TierCPU
		x.send(a, inc, ev)
	}
	hashes := func() int { return x.allShards()[0].info[0].lower[0].Len() }
	for i := range most {
		next(i)
	}
	evicted := 0
	for next(most); hashes() > most+evicted && evicted < 3*most+8192; evicted++ {
		next(most + evicted + 1)
	}
	if evicted < most/2+4096-2 || evicted > most/2+4096+2 {
		t.Errorf("hashes are forgotten after %d evictions, want %d", evicted, most/2+4096)
	}
	if n := x.counts().Hashes; n > most+1 {
		t.Errorf("%d hashes of %d blocks", n, most)
	}
	next(3 * most / 2)
	x.Sweep()
	if st := x.counts(); st.Hashes != most || st.Blocks != most {
		t.Errorf("%d hashes of %d blocks after a sweep", st.Hashes, st.Blocks)
	}
}

// The bound of all scopes holds whatever the scopes' own bound allows.
func TestTheBoundOfAllScopesHolds(t *testing.T) {
	x := newFixture(t, Options{MaxScopeBlocks: 20, MaxBlocks: 30})
	inc := x.Begin(a)
	for i := range 30 {
		for scope := range 3 {
			ev := x.blocksOf(10*i+scope, 1+i%4)
			ev.Scope.LoRA = prefixhash.LoRA{Set: true, Name: fmt.Sprint(scope)}
			x.send(a, inc, ev)
			if n := x.counts().Blocks; n > 30 {
				t.Fatalf("%d blocks, want at most 30", n)
			}
		}
	}
	if n := x.counts().Blocks; n != 30 {
		t.Errorf("%d blocks, want 30", n)
	}
}
