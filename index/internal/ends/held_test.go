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

// grove is a Held over a tree, and a plain copy of its contents.
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
		full.Record(b.at, keys)
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

// want reports, by the blocks that layers read, whether a hit may end there.
func (g *grove) want(b *branch, at int) bool {
	all := at%g.shape.Step == 0
	for i := range g.shape.Specs {
		all = all && g.reads(b, i, at)
	}
	return all
}

// reads reports whether the holder has all blocks that a spec's layers read before an end.
func (g *grove) reads(b *branch, spec, end int) bool {
	s := &g.shape.Specs[spec]
	from := max(0, end-s.Need*s.Stride)
	if s.Chunk > 0 {
		from = end / s.Chunk * s.Chunk
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
		var told [branchBlocks]bool
		for _, r := range g.table.Of(b.at.Node()) {
			for off := int(r.From); off < int(r.To); off++ {
				told[off] = true
				if r.Set != holderset.Single(0) {
					g.t.Fatalf("span %+v", r)
				}
			}
		}
		for off := range branchBlocks {
			want := g.want(b, g.depth(b)+off+1)
			if told[off] != want {
				g.t.Fatalf("step %d, %+v: the end at %d of branch %d is told %v, want %v", step, *g.shape, off, i, told[off], want)
			}
			if want {
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
	if spans := g.table.Of(b.at.Node()); len(spans) > 0 && int(spans[len(spans)-1].To) > from {
		g.t.Fatalf("cut at %d, with ends %v", from, spans)
	}
	if from == 0 {
		g.held.Cut(b.at.Node(), 0) // nothing
	}
	g.put(g.branches[b.parent], b.from-1, rnd)
	g.held.Settle()
	if spans := g.table.Of(b.at.Node()); from == 0 && len(spans) > 0 {
		g.t.Fatalf("all was cut, and there are ends %v", spans)
	}
	for off := from; off < branchBlocks; off++ {
		g.put(b, off, rnd)
	}
}

// TestEndsAreWhereAllAreSatisfied: after any blocks were put at once, in any order and in
// several nodes, and after cuts, the table's answer for each end equals that of the held
// blocks, blocks of nodes before it included.
func TestEndsAreWhereAllAreSatisfied(t *testing.T) {
	for _, shape := range []*Shape{
		{Step: 1, Specs: []Spec{{Stride: 1, Need: 1}}},
		{Step: 1, Specs: []Spec{{Stride: 1, Need: 3}}},
		{Step: 2, Specs: []Spec{{Stride: 2, Need: 1}, {Stride: 1, Need: 4}}},
		{Step: 1, Specs: []Spec{{Stride: 1, Chunk: 8}}},
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
		g.held.Clear()
		for i, b := range g.branches {
			if spans := g.table.Of(b.at.Node()); spans != nil {
				t.Errorf("%+v: branch %d has ends %v without a holder", *shape, i, spans)
			}
		}
	}
}
