package radix

import (
	"fmt"
	"iter"
	"testing"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/index/internal/offheap"
	"warmroute/prefixhash"
)

// forest is nodes with one tree and some holdings.
type forest struct {
	t     *testing.T
	clock epoch.Clock
	pool  offheap.Pool
	sets  holderset.Sets
	nodes Nodes
	tree  Tree
	held  []Holding
	ended map[int]bool // slots whose holders have ended
}

func newForest(t *testing.T, every, slots int) *forest {
	f := &forest{t: t, held: make([]Holding, slots), ended: map[int]bool{}}
	f.clock.Init()
	f.pool.Init(&f.clock)
	f.sets.Init(&f.clock)
	f.nodes.Init(&f.clock, &f.pool, &f.sets, every)
	f.nodes.Add(&f.tree, 1)
	for slot := range f.held {
		f.held[slot].Init(&f.nodes, slot)
	}
	t.Cleanup(f.pool.Close)
	return f
}

// chain is keys that follow each other, from a number on.
func chain(from, n int) (keys []uint64) {
	for i := range n {
		keys = append(keys, uint64(from+i+1)*hashtable.Golden)
	}
	return keys
}

// begin stores a node of blocks whose keys are their hashes too.
func (f *forest) begin(slot int, parent Place, keys []uint64) Place {
	f.t.Helper()
	return f.beginHashed(slot, parent, keys, keys, 1)
}

func (f *forest) beginHashed(slot int, parent Place, keys, hashes []uint64, tick uint16) Place {
	f.t.Helper()
	p := f.tree.New(keys, hashes)
	f.record(slot, p, hashes)
	f.tree.Begin(p, parent, len(keys), slot, tick)
	f.held[slot].Joined(p)
	return p
}

// record gives blocks a slot's hashes.
func (f *forest) record(slot int, p Place, hashes []uint64) {
	f.t.Helper()
	if n := f.held[slot].Record(p, hashes); n != len(hashes) {
		f.t.Fatalf("%d of %d hashes are recorded", n, len(hashes))
	}
}

// extend appends blocks to a node. Their keys are their hashes too.
func (f *forest) extend(slot int, p Place, keys []uint64) {
	f.t.Helper()
	f.nodes.Reserve(p, keys, keys)
	f.record(slot, p, keys)
	f.nodes.Append(p, len(keys), slot, 1)
}

// leave removes a slot from a node's blocks from an offset on. Their keys are their hashes too.
func (f *forest) leave(slot int, node uint32, from int) {
	f.t.Helper()
	h := &f.held[slot]
	for off := h.Held(node) - 1; off >= from; off-- {
		h.Take(f.nodes.Key(At(node, off)))
	}
	if !h.Leave(node, from) {
		f.t.Fatal("too many different sets")
	}
}

// add makes a slot a holder of blocks that are there.
func (f *forest) add(slot int, p Place, keys []uint64) {
	f.t.Helper()
	f.record(slot, p, keys)
	if !f.held[slot].Add(p, len(keys), 1) {
		f.t.Fatal("too many different sets")
	}
}

func (f *forest) check() error {
	c, err := f.nodes.check(func(slot int) bool { return slot < len(f.held) && !f.ended[slot] })
	if err != nil {
		return err
	}
	for slot := range f.held {
		if f.ended[slot] {
			continue
		}
		if err := f.held[slot].check(c); err != nil {
			return fmt.Errorf("slot %d: %w", slot, err)
		}
	}
	if n := f.sets.Len(); n != len(c.references) {
		return fmt.Errorf("%d sets are interned, %d have references", n, len(c.references))
	}
	return nil
}

// traced returns the set of each block of a prompt, as far as a trace follows the prompt. It
// checks that stretches begin where their nodes begin, and that sets change within them.
func (f *forest) traced(keys []prefixhash.Key) (sets []holderset.ID) {
	f.t.Helper()
	reader := f.clock.Enter()
	defer reader.Leave()
	path := f.tree.Trace(nil, keys)
	depth := int32(0)
	for i, s := range path {
		if s.Depth != depth || s.Len <= 0 || f.nodes.Depth(s.Node()) != int(depth) {
			f.t.Fatalf("stretch %d is %d blocks at depth %d of node %d, which begins at %d; %d blocks are before it", i, s.Len, s.Depth, s.Node(), f.nodes.Depth(s.Node()), depth)
		}
		for k := 0; ; k++ {
			at, _, ok := s.Change(k)
			if !ok {
				break
			}
			if at <= depth || at >= s.Depth+s.Len {
				f.t.Fatalf("stretch %d changes at depth %d, behind %d and before %d", i, at, depth, s.Depth+s.Len)
			}
			depth = at
		}
		depth = s.Depth + s.Len
	}
	if int(depth) > len(keys) {
		f.t.Fatalf("%d blocks of a prompt of %d", depth, len(keys))
	}
	return setsOf(path)
}

// setsOf returns the set of each block of a path.
func setsOf(path []Stretch) (sets []holderset.ID) {
	upTo := func(depth int32, set holderset.ID) {
		for len(sets) < int(depth) {
			sets = append(sets, set)
		}
	}
	for _, s := range path {
		set := s.Set()
		for k := 0; ; k++ {
			depth, next, ok := s.Change(k)
			if !ok {
				break
			}
			upTo(depth, set)
			set = next
		}
		upTo(s.Depth+s.Len, set)
	}
	return sets
}

// heldOf returns how many blocks a slot has by the sets along a prompt.
func (f *forest) heldOf(sets []holderset.ID, slot int) (held int) {
	for held < len(sets) && f.sets.Has(sets[held], slot) {
		held++
	}
	return held
}

// Len returns how many nodes have blocks.
func (n *Nodes) Len() (nodes int) {
	for range n.each() {
		nodes++
	}
	return nodes
}

// each yields every node that has blocks.
func (n *Nodes) each() iter.Seq2[uint32, *node] {
	return func(yield func(uint32, *node) bool) {
		for id := uint32(1); id <= n.made; id++ {
			if nd := n.at(id); nd.len() > 0 && !yield(id, nd) {
				return
			}
		}
	}
}
