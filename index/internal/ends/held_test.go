package ends

import (
	"math/rand/v2"
	"testing"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/index/internal/offheap"
	"warmroute/index/internal/radix"
)

// branch is a node of a small tree, all of whose blocks one holder has.
type branch struct {
	parent, from int // index of the branch it follows and how many blocks of it; -1: none
	at           radix.Place
	has          [][]bool // by spec and offset
}

const branchBlocks = 20

// grove is a Held over a tree, and a plain copy of what is held.
type grove struct {
	t        *testing.T
	shape    *Shape
	table    Table
	held     *Held
	branches []*branch
}

func newGrove(t *testing.T, shape *Shape) *grove {
	g := &grove{t: t, shape: shape, branches: []*branch{{parent: -1}, {parent: 0, from: 12}, {parent: 1, from: branchBlocks}, {parent: 0, from: branchBlocks}}}
	var clock epoch.Clock
	clock.Init()
	pool, sets, nodes, tree, full := new(offheap.Pool), new(holderset.Sets), new(radix.Nodes), new(radix.Tree), new(radix.Holding)
	pool.Init(&clock)
	t.Cleanup(pool.Close)
	sets.Init(&clock)
	nodes.Init(&clock, pool, sets, 8)
	nodes.Add(tree, 1)
	full.Init(nodes, 0)
	g.table.Init(sets)
	for i, b := range g.branches {
		var keys []uint64
		for off := range branchBlocks {
			keys = append(keys, uint64(i*branchBlocks+off+1)*hashtable.Golden)
		}
		parent := radix.Place(0)
		if b.parent >= 0 {
			parent = g.branches[b.parent].at + radix.Place(b.from-1)
		}
		b.at = tree.New(keys, keys)
		full.Name(b.at, keys)
		tree.Begin(b.at, parent, len(keys), 0, 1)
		full.Joined(b.at)
		for range shape.Specs {
			b.has = append(b.has, make([]bool, branchBlocks))
		}
	}
	g.held = NewHeld(&g.table, nodes, full, 0, shape)
	return g
}

// put has the holder hold other blocks at an offset of a branch than before.
func (g *grove) put(b *branch, off int, rnd *rand.Rand) {
	specs := uint32(0)
	for i := range b.has {
		if b.has[i][off] = rnd.IntN(8) > 0; b.has[i][off] {
			specs |= 1 << i
		}
	}
	g.held.Put(b.at+radix.Place(off), specs)
}

// holds reports whether a spec's block that ends after so many of a branch's path is held.
func (g *grove) holds(b *branch, spec, end int) bool {
	for g.depth(b) >= end {
		b = g.branches[b.parent]
	}
	return b.has[spec][end-1-g.depth(b)]
}

func (g *grove) depth(b *branch) int {
	if b.parent < 0 {
		return 0
	}
	return g.depth(g.branches[b.parent]) + b.from
}

// want returns, by what layers read, what an end is.
func (g *grove) want(b *branch, at int) end {
	all, any, dropped := true, false, true
	states := false
	for i, s := range g.shape.Specs {
		if !g.shape.Ahead {
			all = all && at%g.shape.Step == 0 && g.reads(b, i, at, s.Need)
			continue
		}
		all = all && g.reads(b, i, at-1, s.Need)
		if s.Drops && s.State {
			states = true
		} else if s.Drops {
			one := g.reads(b, i, at, s.Need)
			dropped, any = dropped && one, any || one
		}
	}
	switch {
	case all && dropped:
		return sure
	case any && (all || states):
		return open
	}
	return none
}

// reads reports whether what a spec's layers read before an end is held, so many blocks
// where they have a window.
func (g *grove) reads(b *branch, spec, end, need int) bool {
	s := &g.shape.Specs[spec]
	from := max(0, end-need*s.Stride)
	switch {
	case s.Chunk > 0:
		from = end / s.Chunk * s.Chunk
	case s.All:
		from = 0
	}
	for at := end; at > from; at -= s.Stride {
		if !g.holds(b, spec, at) {
			return false
		}
	}
	return true
}

func (g *grove) check(step int) (allowed int) {
	g.t.Helper()
	for i, b := range g.branches {
		var told [branchBlocks]end
		for _, r := range g.table.Of(b.at.Node()) {
			for off := int(r.From); off < int(r.To); off++ {
				if told[off] = open; r.Sure != 0 {
					told[off] = sure
				}
				if r.Set != holderset.Single(0) || r.Sure&^r.Set != 0 {
					g.t.Fatalf("run %+v", r)
				}
			}
		}
		for off := range branchBlocks {
			want := g.want(b, g.depth(b)+off+1)
			if told[off] != want {
				g.t.Fatalf("step %d, %+v: the end at %d of branch %d is told %v, want %v", step, *g.shape, off, i, told[off], want)
			}
			if want != none {
				allowed++
			}
		}
	}
	return allowed
}

// cut takes a leaf's blocks from somewhere on, perhaps all, has the block before the
// leaf change, and puts others.
func (g *grove) cut(b *branch, rnd *rand.Rand) {
	g.t.Helper()
	from := max(0, rnd.IntN(2*branchBlocks)-branchBlocks)
	g.put(b, rnd.IntN(branchBlocks), rnd) // not settled yet
	g.held.Cut(b.at.Node(), from)
	if runs := g.table.Of(b.at.Node()); len(runs) > 0 && int(runs[len(runs)-1].To) > from {
		g.t.Fatalf("cut at %d, with ends %v", from, runs)
	}
	if from == 0 {
		g.held.Cut(b.at.Node(), 0) // nothing
	}
	g.put(g.branches[b.parent], b.from-1, rnd)
	g.held.Settle()
	if runs := g.table.Of(b.at.Node()); from == 0 && len(runs) > 0 {
		g.t.Fatalf("all was cut, and there are ends %v", runs)
	}
	for off := from; off < branchBlocks; off++ {
		g.put(b, off, rnd)
	}
}

// TestEndsAreWhereAllAreSatisfied: after whatever was put at once, in any order and
// in several nodes, and after cuts, the table says of each end what the blocks held
// allow, blocks of nodes before it included.
func TestEndsAreWhereAllAreSatisfied(t *testing.T) {
	for _, shape := range []*Shape{
		{Step: 1, Specs: []Spec{{Stride: 1, Need: 1}}},
		{Step: 1, Specs: []Spec{{Stride: 1, Need: 3}}},
		{Step: 2, Specs: []Spec{{Stride: 2, Need: 1}, {Stride: 1, Need: 4}}},
		{Step: 1, Specs: []Spec{{Stride: 1, Chunk: 8}}},
		{Step: 1, Specs: []Spec{{Stride: 1, All: true}}},
		{Step: 1, Ahead: true, Specs: []Spec{{Stride: 1, Need: 2, Drops: true}, {Stride: 1, Need: 4, Drops: true}}},
		{Step: 1, Ahead: true, Specs: []Spec{{Stride: 1, Need: 1, Drops: true, State: true}, {Stride: 1, Need: 3, Drops: true}}},
		{Step: 1, Ahead: true, Specs: []Spec{{Stride: 1, Chunk: 6, Drops: true}, {Stride: 1, Need: 3}, {Stride: 1, Need: 1, State: true}}},
		{Step: 4, Specs: []Spec{{Stride: 4, Need: 1}, {Stride: 1, Chunk: 8}, {Stride: 2, Need: 3}}},
		{Step: 2, Specs: []Spec{{Stride: 2, Chunk: 12}}},
	} {
		g := newGrove(t, shape)
		rnd := rand.New(rand.NewPCG(1, 2))
		for _, b := range g.branches {
			for off := range branchBlocks {
				g.put(b, off, rnd)
			}
		}
		g.held.Settle()
		allowed := 0
		for step := range 2000 {
			if rnd.IntN(10) == 0 { // an end goes, and comes again
				g.cut(g.branches[2+rnd.IntN(2)], rnd)
			}
			for range rnd.IntN(4) {
				b, off := g.branches[rnd.IntN(len(g.branches))], rnd.IntN(branchBlocks)
				for range 1 + rnd.IntN(3) {
					g.put(b, off, rnd)
					off = min(off+1, branchBlocks-1)
				}
			}
			g.held.Settle()
			allowed += g.check(step)
		}
		if allowed < 2000 {
			t.Errorf("%+v: only %d ends allowed", *shape, allowed)
		}
		empty := NewHeld(&g.table, g.held.nodes, g.held.full, 0, shape).Bytes()
		parts := 0
		for _, p := range g.held.parts {
			parts += partBytes + 8*(len(p.ends)+len(p.sure)) + len(shape.Specs)*(24+8)
		}
		if got := g.held.Bytes(); got != parts || empty != 0 {
			t.Errorf("%+v: %d bytes, %d of nothing, want %d", *shape, got, empty, parts)
		}
		g.held.Clear()
		for i, b := range g.branches {
			if runs := g.table.Of(b.at.Node()); runs != nil {
				t.Errorf("%+v: branch %d has ends %v without a holder", *shape, i, runs)
			}
		}
	}
}
