package index

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
	"warmroute/render/testkit/race"
)

// contentBetween returns the content of a block that has a given key behind a parent: links
// have no secret, so anyone can aim at a key.
func contentBetween(parent, key prefixhash.Key) prefixhash.Content {
	h := uint64(key)
	h ^= h >> 32
	h *= inverse(0x165667919e3779f9)
	h ^= h >> 37
	return prefixhash.Content(h - uint64(parent)*0x9e3779b97f4a7c15)
}

// inverse returns the inverse of an odd number modulo 2^64.
func inverse(n uint64) uint64 {
	x := n
	for range 5 {
		x *= 2 - n*x
	}
	return x
}

func TestContentBetween(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		parent, key := prefixhash.Key(rng.Uint64()), prefixhash.Key(rng.Uint64())
		if got := prefixhash.Link(parent, contentBetween(parent, key)); got != key {
			t.Fatalf("behind %x: %x, want %x", parent, got, key)
		}
	}
}

// liar is a holder that reports made-up blocks with the keys of others.
type liar struct {
	*world
	self        Holder
	incarnation uint64
	blocks      []lie
	hashes      uint64
}

// lie is a block that a liar has reported.
type lie struct {
	hash uint64
	key  prefixhash.Key
	at   int // its depth
}

// newLiar makes a world of long prompts, and a liar in it.
func newLiar(t *testing.T, seed uint64, o Options) *liar {
	w := newWorld(t, seed, 1, SchemeTokens)
	o.Now, o.checkpointEvery = w.clock.now, []int{3, 16, 128}[seed%3]
	x := New(o)
	t.Cleanup(x.Close)
	w.x = x
	w.f = newLongForest(w.rng, 400, w.f.scope)
	for h := range w.inc {
		w.begin(h)
	}
	l := &liar{world: w, self: Holder{Replica: "10.0.0.9:8000"}}
	l.incarnation = x.Begin(l.self)
	return l
}

// newLongForest makes blocks in few long chains that branch.
func newLongForest(rng *rand.Rand, n int, s Scope) *forest {
	t := newForest(rng, 0, 1, s)
	for i := range n {
		p, k := i-1, prefixhash.TokenRoot(s.Model, s.LoRA)
		if rng.IntN(30) == 0 {
			p = rng.IntN(i+1) - 1
		}
		if p >= 0 {
			k = t.key[p]
		}
		c := prefixhash.Content(rng.Uint64())
		t.parent, t.content, t.key = append(t.parent, p), append(t.content, c), append(t.key, prefixhash.Link(k, c))
		t.kids[p] = append(t.kids[p], i)
	}
	return t
}

// lie reports, removes or drops made-up blocks.
func (l *liar) lie() {
	switch op := l.rng.IntN(20); {
	case op < 13:
		l.store()
	case op < 18 && len(l.blocks) > 0:
		ev := Event{Kind: Removed, Scope: Scope{Group: l.f.scope.Group}}
		for range 1 + l.rng.IntN(20) {
			ev.Hashes = append(ev.Hashes, l.blocks[l.rng.IntN(len(l.blocks))].hash)
		}
		l.tell(ev)
	case op == 18 && l.rng.IntN(10) == 0:
		l.tell(Event{Kind: Cleared})
		l.blocks = nil
	case op == 19 && l.rng.IntN(10) == 0:
		l.incarnation = l.x.Begin(l.self)
		l.blocks = nil
	}
}

// store reports a chain with the keys of two prompts by turns, and of nobody: behind a
// start, or behind any block reported before.
func (l *liar) store() {
	ev := Event{Kind: Stored, Scope: l.f.scope, Tier: Tier(l.rng.IntN(l.tiers))}
	parent, at := prefixhash.TokenRoot(l.f.scope.Model, l.f.scope.LoRA), 0
	if len(l.blocks) > 0 && l.rng.IntN(3) > 0 {
		b := l.blocks[l.rng.IntN(len(l.blocks))]
		ev.HasParent, ev.Parent, parent, at = true, b.hash, b.key, b.at+1
	}
	this, other := l.f.path(l.rng.IntN(len(l.f.parent))), l.f.path(l.rng.IntN(len(l.f.parent)))
	if l.rng.IntN(8) == 0 { // at another depth than the prompt's
		this = this[l.rng.IntN(len(this)):]
	}
	rare := 1 + l.rng.IntN(40)
	for n := 1 + l.rng.IntN(80); n > 0 && at < len(this); n-- {
		key := l.f.key[this[at]]
		switch l.rng.IntN(2 * rare) {
		case 0:
			key = prefixhash.Key(l.rng.Uint64())
		case 1:
			this, other = other, this
		}
		l.hashes++
		hash := bits.Reverse64(l.hashes)
		ev.Hashes, ev.Content = append(ev.Hashes, hash), append(ev.Content, contentBetween(parent, key))
		l.blocks = append(l.blocks, lie{hash, key, at})
		parent, at = key, at+1
	}
	if len(ev.Hashes) > 0 {
		l.tell(ev)
	}
}

func (l *liar) tell(ev Event) {
	l.t.Helper()
	must.Get(l.x.Apply(&Batch{Holder: l.self, Incarnation: l.incarnation, Events: []Event{ev}}))(l.t)
}

// prompt stores a whole prompt for an honest holder.
func (l *liar) prompt() {
	h, nodes := l.holder(), l.f.path(l.rng.IntN(len(l.f.parent)))
	l.m.store(l.f, h, TierGPU, nodes, l.full)
	l.apply(h, l.f.stored(h, TierGPU, nodes))
}

// run lets the liar lie among the events of honest holders, whose matches check compares.
func (l *liar) run(steps int, check func(step int)) {
	if race.Enabled {
		steps /= 10
	}
	for i := range steps {
		l.lie()
		if i%3 == 0 || l.x.o.MaxScopeBlocks < DefaultMaxScopeBlocks { // where blocks are evicted, step's results are others
			l.prompt()
		} else {
			l.world.step()
		}
		if i%8 == 0 {
			if err := l.x.check(); err != nil {
				l.t.Fatalf("step %d: %v", i, err)
			}
		}
		check(i)
	}
}

// Whatever one holder reports, the matches of the others are those of their own blocks.
func TestALiarHidesNoBlocks(t *testing.T) {
	for seed := range uint64(12) {
		l := newLiar(t, seed, Options{})
		l.tiers = 1 + int(seed%2)*2
		l.run(400, func(step int) {
			for range 6 {
				l.checkPath(step, l.f.path(l.rng.IntN(len(l.f.parent))))
			}
			if step%50 == 30 {
				l.checkRestored(step)
			}
		})
	}
}

// checkRestored compares the honest holders' matches in an index restored from a snapshot.
func (l *liar) checkRestored(step int) {
	l.t.Helper()
	x := New(Options{Now: l.clock.now})
	defer x.Close()
	x.Restore(l.x.Snapshot())
	if err := x.check(); err != nil {
		l.t.Fatalf("step %d, restored: %v", step, err)
	}
	defer func(was *Index) { l.x = was }(l.x)
	l.x = x
	for range 40 {
		l.checkPath(step, l.f.path(l.rng.IntN(len(l.f.parent))))
	}
}

// The same while blocks are evicted: nobody is credited with blocks that it has not.
func TestALiarCreditsNobody(t *testing.T) {
	evicted := false
	for seed := range uint64(6) {
		l := newLiar(t, seed, Options{MaxScopeBlocks: 300})
		l.run(400, func(step int) {
			for range 6 {
				nodes, ids := l.f.path(l.rng.IntN(len(l.f.parent))), map[HolderID]Holder{}
				for h := range l.inc {
					ids[l.x.ID(h)] = h
				}
				for _, m := range l.x.Lookup(nil, l.f.scope, l.f.keys(nodes)) {
					if h, honest := ids[m.ID]; honest && m.Blocks > l.m.match(h, nodes, l.clock.t).Blocks {
						t.Fatalf("step %d: %v of %d blocks: %+v, want %+v at most", step, h, len(nodes), m, l.m.match(h, nodes, l.clock.t))
					}
				}
			}
		})
		for _, sh := range l.x.allShards() {
			evicted = evicted || slices.ContainsFunc(sh.info, func(i slotInfo) bool { return i.capped })
		}
	}
	if !evicted {
		t.Error("nothing was evicted")
	}
}
