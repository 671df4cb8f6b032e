package radix

import (
	"testing"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/index/internal/offheap"
)

// forest is nodes with one tree and two holdings.
type forest struct {
	t     *testing.T
	clock epoch.Clock
	pool  offheap.Pool
	sets  holderset.Sets
	nodes Nodes
	tree  Tree
	held  [2]Holding
}

func newForest(t *testing.T, every int) *forest {
	f := &forest{t: t}
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

// begin stores a node without holders, by its keys as hashes.
func (f *forest) begin(slot int, parent Place, keys []uint64) Place {
	f.t.Helper()
	p := f.tree.New(keys, keys)
	if n := f.held[slot].Record(p, keys); n != len(keys) {
		f.t.Fatalf("%d of %d blocks are named", n, len(keys))
	}
	f.tree.Begin(p, parent, len(keys), slot, 1)
	f.held[slot].Joined(p)
	return p
}

// add gives blocks that are there to a slot.
func (f *forest) add(slot int, p Place, keys []uint64) {
	f.t.Helper()
	if n := f.held[slot].Record(p, keys); n != len(keys) || !f.held[slot].Add(p, n, 1) {
		f.t.Fatalf("%d of %d blocks are named", n, len(keys))
	}
}

func (f *forest) check() error {
	c, err := f.nodes.Check(func(slot int) bool { return slot < len(f.held) })
	if err != nil {
		return err
	}
	for slot := range f.held {
		if err := f.held[slot].Check(c); err != nil {
			return err
		}
	}
	var slots holderset.Slots
	slots.Init(&f.clock)
	slots.Take(0)
	slots.Take(1)
	return f.sets.Check(&slots, c.References)
}
