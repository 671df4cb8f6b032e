package index

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// branch adds n blocks behind a block of the forest, and returns their numbers.
func (f *forest) branch(behind, n int) (nodes []int) {
	for range n {
		c := prefixhash.Content(1000 + len(f.parent))
		f.key = append(f.key, prefixhash.Link(f.key[behind], c))
		f.parent, f.content = append(f.parent, behind), append(f.content, c)
		behind = len(f.parent) - 1
		nodes = append(nodes, behind)
	}
	return nodes
}

// why explains a's part of the prompt that ends with a block.
func (x *fixture) why(n int) Ending {
	return x.Why(x.ID(a), x.f.scope, &Trail{Keys: x.f.keys(x.f.path(n))})
}

// evict removes blocks one after the other, from the last to the first, as vLLM does: each
// with a batch of its own, a second later.
func (x *fixture) evict(inc uint64, from, to int) {
	for n := to - 1; n >= from; n-- {
		x.clock.t = x.clock.t.Add(time.Second)
		x.send(a, inc, x.f.removed(a, TierGPU, n))
	}
}

// TestWhyTheBlockBehindIsNotThere: what Why tells of the block behind a match, in each case.
func TestWhyTheBlockBehindIsNotThere(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	after := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	for name, tc := range map[string]struct {
		do   func(x *fixture, inc uint64)
		want Ending
	}{
		"never stored":        {func(*fixture, uint64) {}, Ending{Since: start}},
		"the whole prompt":    {func(x *fixture, inc uint64) { x.send(a, inc, x.f.stored(a, TierGPU, x.all())) }, Ending{Blocks: 64, Since: start}},
		"a part":              {func(x *fixture, inc uint64) { x.send(a, inc, x.f.stored(a, TierGPU, x.all()[:9])) }, Ending{Blocks: 9, Since: start}},
		"another replica has": {func(x *fixture, _ uint64) { x.send(b, x.Begin(b), x.f.stored(b, TierGPU, x.all())) }, Ending{Since: start}},
		"another prompt in the node": {func(x *fixture, inc uint64) {
			other := x.f.branch(9, 5)
			x.send(a, inc, x.f.stored(a, TierGPU, append(slices.Clone(x.all()[:10]), other...)))
		}, Ending{Blocks: 10, Branches: true, Since: start}},
		"another prompt behind": {func(x *fixture, inc uint64) {
			other := x.f.branch(9, 5)
			x.send(b, x.Begin(b), x.f.stored(b, TierGPU, x.all()[:64]))
			x.send(a, inc, x.f.stored(a, TierGPU, x.all()[:10]), x.f.stored(a, TierGPU, other))
		}, Ending{Blocks: 10, Branches: true, Since: start}},
		"evicted in turn": {func(x *fixture, inc uint64) {
			x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
			x.evict(inc, 20, 64)
		}, Ending{Blocks: 20, Removed: after(44), Since: start}},
		"evicted at once": {func(x *fixture, inc uint64) {
			x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
			x.clock.t = after(3)
			x.send(a, inc, x.f.removed(a, TierGPU, x.all()[20:]...))
		}, Ending{Blocks: 20, Removed: after(3), Since: start}},
		"evicted from the start": {func(x *fixture, inc uint64) {
			x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
			x.clock.t = after(3)
			x.send(a, inc, x.f.removed(a, TierGPU, 7))
		}, Ending{Blocks: 7, Removed: after(3), Since: start}},
		"behind one that was evicted and stored again": {func(x *fixture, inc uint64) {
			x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
			x.clock.t = after(3)
			x.send(a, inc, x.f.removed(a, TierGPU, 7))
			x.send(a, inc, x.f.stored(a, TierGPU, []int{7}))
		}, Ending{Blocks: 64, Since: start}},
		"evicted, and a part stored again": {func(x *fixture, inc uint64) {
			x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
			x.evict(inc, 0, 64)
			x.send(a, inc, x.f.stored(a, TierGPU, x.all()[:30]))
		}, Ending{Blocks: 30, Removed: after(64), Since: start}},
		"evicted in another group": {func(x *fixture, inc uint64) {
			other := *x.f
			other.scope.Group = 1
			first, all := x.f.stored(a, TierGPU, x.all()[:9]), other.stored(a, TierGPU, x.all())
			first.Spec = "full_attention"
			all.Spec = "mla_attention"
			x.send(a, inc, first, all)
			x.send(a, inc, other.removed(a, TierGPU, x.all()[9:]...))
		}, Ending{Blocks: 9, Since: start}},
		"cleared": {func(x *fixture, inc uint64) {
			x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
			x.evict(inc, 60, 64)
			x.send(a, inc, Event{Kind: Cleared})
		}, Ending{Since: after(4), Loss: LossCleared}},
		"restarted": {func(x *fixture, inc uint64) {
			x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
			x.clock.t = after(5)
			x.Begin(a)
			x.Lose(a, LossRestarted)
		}, Ending{Since: after(5), Loss: LossRestarted}},
		"begun again": {func(x *fixture, _ uint64) { x.clock.t = after(5); x.Begin(a) }, Ending{Since: after(5), Loss: LossBegun}},
		"silent": {func(x *fixture, inc uint64) {
			x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
			x.clock.t = after(2 * 3600)
			x.Sweep()
			x.Begin(a)
		}, Ending{Since: after(2 * 3600), Loss: LossSilent}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t, Options{})
			tc.do(x, x.Begin(a))
			if got := x.why(63); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestWhyOfStrangers: a holder, a scope and a prompt that the index does not know have no
// past.
func TestWhyOfStrangers(t *testing.T) {
	x := newFixture(t, Options{})
	if got := x.Why(99, x.f.scope, &Trail{}); got != (Ending{}) {
		t.Errorf("an unknown holder: %+v", got)
	}
	inc := x.Begin(a)
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
	other := x.f.scope
	other.Model = "other"
	if got := x.Why(x.ID(a), other, &Trail{Keys: x.f.key}); got.Blocks != 0 || got.Branches {
		t.Errorf("an unknown scope: %+v", got)
	}
	if got := x.Why(x.ID(a), x.f.scope, &Trail{}); got.Blocks != 0 || !got.Removed.IsZero() {
		t.Errorf("no keys: %+v", got)
	}
}

// TestWhyTheIndexIsFull: blocks that the index dropped itself are told apart.
func TestWhyTheIndexIsFull(t *testing.T) {
	x := newFixture(t, Options{MaxScopeBlocks: 40})
	inc := x.Begin(a)
	for i := range 30 {
		x.send(a, inc, x.blocksOf(i, 2))
	}
	if got := x.why(63); !got.Dropped {
		t.Errorf("%+v", got)
	}
}

// TestWhyABlockWasRefused: a block that was not stored because the events contradict each other is
// that block's cause alone; nothing says that the index is full.
func TestWhyABlockWasRefused(t *testing.T) {
	cases := map[string]func(ev *Event){
		"a hash twice in an event": func(ev *Event) { ev.Hashes[9] = ev.Hashes[2] },
		"the parent's hash":        func(ev *Event) { ev.Hashes[9] = ev.Hashes[8] },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t, Options{})
			inc := x.Begin(a)
			ev := x.f.stored(a, TierGPU, x.all()[:12])
			change(&ev)
			x.send(a, inc, ev, x.blocksOf(7, 3))
			if got := x.why(63); got.Blocks != 9 || !got.Refused || got.Dropped {
				t.Errorf("%+v, want the 10th block refused", got)
			}
			other := &Trail{Keys: []prefixhash.Key{12345}}
			if got := x.Why(x.ID(a), x.f.scope, other); got.Refused || got.Dropped {
				t.Errorf("another prompt: %+v", got)
			}
			x.send(a, inc, x.f.stored(a, TierGPU, x.all()[:12]))
			x.wantReported(a, 12)
		})
	}
	t.Run("bounded", func(t *testing.T) {
		var i slotInfo
		for n := range uint64(10 * maxRefused) {
			i.noteRefused([]uint64{n}, false)
		}
		if len(i.refused) > maxRefused {
			t.Errorf("%d keys", len(i.refused))
		}
	})
}

// TestRemovalsAreBounded: a holder remembers so many removals, says from when on, and all
// holders together remember no more than the bound allows.
func TestRemovalsAreBounded(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	began := x.clock.t
	for i := range maxRemovals + 500 {
		x.send(a, inc, x.blocksOf(i, 1))
		x.clock.t = x.clock.t.Add(time.Second)
		x.send(a, inc, Event{Kind: Removed, Scope: Scope{Group: x.f.scope.Group}, Hashes: []uint64{uint64(i+1) << 20}})
	}
	h := x.intern(a)
	if len(h.removals.ring) != maxRemovals || x.removals.Load() != maxRemovals {
		t.Errorf("%d removals remembered, %d counted", len(h.removals.ring), x.removals.Load())
	}
	why := func(number int) Ending {
		ev := x.blocksOf(number, 1)
		key := prefixhash.Link(prefixhash.TokenRoot("m", prefixhash.LoRA{}), ev.Content[0])
		return x.Why(x.ID(a), x.f.scope, &Trail{Keys: []prefixhash.Key{key}})
	}
	if got, want := why(500), began.Add(501*time.Second); !got.Removed.Equal(want) {
		t.Errorf("the oldest: %+v, want %v", got, want)
	}
	if got, want := why(499), began.Add(500*time.Second+tenth); !got.Removed.IsZero() || !got.Remembered.Equal(want) {
		t.Errorf("the one before: %+v, want nothing before %v", got, want)
	}
	x.removals.Store(maxAllRemovals - leastRemovals)
	other := x.Begin(b)
	for i := range 3 * leastRemovals {
		ev := x.blocksOf(i, 1)
		x.send(b, other, ev)
		x.send(b, other, Event{Kind: Removed, Hashes: ev.Hashes})
	}
	if n := len(x.intern(b).removals.ring); n != leastRemovals {
		t.Errorf("%d removals when others have taken all room, want %d", n, leastRemovals)
	}
	if n := x.removals.Load(); n != maxAllRemovals {
		t.Errorf("%d removals are counted, want %d", n, maxAllRemovals)
	}
	x.send(a, inc, Event{Kind: Cleared})
	if got := why(maxRemovals); !got.Removed.IsZero() || !got.Remembered.IsZero() {
		t.Errorf("after a clear: %+v", got)
	}
	x.removals.Store(maxRemovals + leastRemovals)
	x.Remove(a.Replica)
	x.Remove(b.Replica)
	if n := x.removals.Load(); n != 0 {
		t.Errorf("%d removals are counted of holders that have left", n)
	}
}

// TestRemovalsBehindAreNoAnswer: that blocks further on were removed does not say that the
// block in question was.
func TestRemovalsBehindAreNoAnswer(t *testing.T) {
	x := newFixture(t, Options{})
	trail := &Trail{Keys: x.f.key}
	r := removals{ring: []removal{{first: trail.key(20), last: trail.key(29), at: 5, blocks: 10}}, next: 1}
	for depth, want := range map[int]bool{10: false, 19: false, 20: true, 25: true, 29: true, 30: false} {
		if _, ok := r.find(trail, depth, 0); ok != want {
			t.Errorf("block %d: found %v", depth, ok)
		}
	}
}

// TestWhyIsTrue: over random events of prompts that branch, a block that Why calls removed
// was removed, not after the time that it tells, and another block that it reports behind
// the match is held. The time is mostly that of the block's last removal: an earlier one is
// told only if the prompt leaves the blocks removed with it last before their end.
func TestWhyIsTrue(t *testing.T) {
	told, early := 0, 0
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 7))
		x := newFixture(t, Options{checkpointEvery: 3})
		x.f = newForest(rng, 120, 1, x.f.scope)
		inc := x.Begin(a)
		held, removed, named := map[int]bool{}, map[int][]time.Time{}, map[int]time.Time{}
		var gone func(n int)
		gone = func(n int) { // block n is removed, and the blocks behind it are left out until they are removed, too
			held[n], removed[n] = false, append(removed[n], x.clock.t)
			for _, kid := range x.f.kids[n] {
				if held[kid] {
					gone(kid)
					x.send(a, inc, x.f.removed(a, TierGPU, kid))
				}
			}
		}
		for range 400 {
			x.clock.t = x.clock.t.Add(time.Second)
			path := x.f.path(rng.IntN(len(x.f.parent)))
			switch n := path[rng.IntN(len(path))]; {
			case rng.IntN(3) == 0:
				var ahead []int
				for _, n := range path {
					if !held[n] && (x.f.parent[n] < 0 || held[x.f.parent[n]]) {
						ahead = append(ahead, n)
						held[n] = true
					}
				}
				if len(ahead) > 0 && slices.Equal(ahead, path[len(path)-len(ahead):]) {
					x.send(a, inc, x.f.stored(a, TierGPU, ahead))
				} else {
					for _, n := range ahead {
						x.send(a, inc, x.f.stored(a, TierGPU, []int{n}))
					}
				}
			case held[n]:
				for i := len(path) - 1; i >= 0 && (path[i] >= n || rng.IntN(4) > 0); i-- {
					if held[path[i]] {
						x.send(a, inc, x.f.removed(a, TierGPU, path[i]))
						gone(path[i])
						named[path[i]] = x.clock.t
					}
				}
			}
			path = x.f.path(rng.IntN(len(x.f.parent)))
			got := x.why(path[len(path)-1])
			depth := 0
			for depth < len(path) && held[path[depth]] {
				depth++
			}
			branches := false
			for n := range x.f.parent {
				branches = branches || depth > 0 && held[n] && x.f.parent[n] == path[depth-1] && (depth == len(path) || n != path[depth])
			}
			if got.Blocks != depth || got.Branches != branches {
				t.Fatalf("seed %d: %+v, want %d blocks, another behind: %v", seed, got, depth, branches)
			}
			if got.Removed.IsZero() {
				continue
			}
			told++
			times := removed[path[depth]]
			if len(times) == 0 || times[0].After(got.Removed) {
				t.Fatalf("seed %d: told removed at %v, was at %v", seed, got.Removed, times)
			}
			if named[path[depth]].After(got.Removed) {
				early++
			}
		}
	}
	if told < 1000 || early*20 > told {
		t.Errorf("removals were told %d times, of these %d times an earlier one than the last", told, early)
	}
}

// TestRemovalsCountFromTheirArrival, whatever time a batch gives: until then the blocks counted.
func TestRemovalsCountFromTheirArrival(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	x.send(a, inc, x.f.stored(a, TierGPU, x.f.path(9)))
	x.clock.t = x.clock.t.Add(time.Second)
	sent := x.clock.t
	x.clock.t = x.clock.t.Add(time.Second)
	old := func(e Event) {
		must.Get(x.Apply(&Batch{Holder: a, Incarnation: inc, Events: []Event{e}}))(t)
	}
	old(x.f.removed(a, TierGPU, 9))
	if e := x.why(9); !e.Removed.Equal(x.clock.t) {
		t.Errorf("removed at %v, want %v", e.Removed, x.clock.t)
	}
	x.send(a, inc, x.f.stored(a, TierGPU, x.f.path(9)))
	if x.Disprove(x.ID(a), x.f.scope, x.f.keys(x.f.path(9)), 9, sent) {
		t.Error("a block that was removed and stored after a request is disproved by its answer")
	}
	old(Event{Kind: Cleared})
	if e := x.why(9); e.Loss != LossCleared || !e.Since.Equal(x.clock.t) {
		t.Errorf("cleared at %v, want %v", e.Since, x.clock.t)
	}
}
