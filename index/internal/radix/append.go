package radix

import (
	"slices"
	"unsafe"

	"warmroute/index/internal/holderset"
)

// Reserve writes keys and hashes at a place behind the last block of a node, where
// no reader looks.
func (n *Nodes) Reserve(p Place, keys, hashes []uint64) {
	nd := n.at(p.Node())
	len0 := nd.len()
	end := len0 + len(keys)
	if nd.capacity == 0 {
		nd.plain = slices.Equal(keys, hashes[:len(keys)])
	}
	if len0 < int(nd.published) || end > int(nd.capacity) {
		width := nd.width()
		fresh, words := n.arrays.take(width * max(end, int(nd.capacity)))
		capacity := words / width
		both := unsafe.Slice(fresh, words)
		copy(both, nd.all())
		copy(both[(width-1)*capacity:], nd.hashes(len0))
		old, size := nd.keys.Swap(fresh), width*int(nd.capacity)
		if old != nil { // only now: no lookup that begins later can know the old array
			n.retired.Put(retired{array: old, words: size})
		}
		nd.capacity, nd.published = uint16(capacity), uint16(len0)
	}
	copy(nd.array(end)[len0:], keys)
	if !nd.plain {
		copy(nd.hashes(end)[len0:], hashes)
	}
}

// Append makes the first reserved blocks at p part of the node, held by one slot,
// at a tick.
func (n *Nodes) Append(p Place, blocks, slot int, tick uint16) {
	nd := n.at(p.Node())
	n.grow(nd, blocks, slot)
	n.trees[nd.tree].added(p.Node(), nd, p.Offset(), p.Offset()+blocks)
	nd.tick = tick
}

func (n *Nodes) grow(nd *node, more, slot int) {
	s := nd.state.Load()
	len0 := lenOf(s)
	end := len0 + more
	nd.published = uint16(end)
	last := setOf(s)
	if s&stateRuns != 0 {
		words := nd.runWords()
		last = unpackRun(words[len(words)-1]).Set
	}
	if last == holderset.Single(slot) {
		nd.state.Store(s&^stateLen | uint64(end))
		return
	}
	n.old = nd.appendRuns(n.old[:0])
	n.old[len(n.old)-1].mark = n.trees[nd.tree].markAt(nd, len0)
	n.old = append(n.old, Run{Set: holderset.Single(slot)})
	nd.truncated = false
	nd.runs.Store(packRuns(n.old))
	nd.state.Store(s&^(stateLen|stateSet) | stateRuns | uint64(end))
}

// New makes a node and writes keys and hashes in it, where no reader looks. Begin
// or Cancel follows. It returns 0 if there are too many nodes.
func (t *Tree) New(keys, hashes []uint64) Place {
	id := t.nodes.take()
	if id == 0 {
		return 0
	}
	p := At(id, 0)
	t.nodes.Reserve(p, keys, hashes)
	return p
}

// Begin makes the first blocks of a new node, which follow a parent, visible.
func (t *Tree) Begin(p, parent Place, blocks, slot int, tick uint16) {
	n, id := t.nodes, p.Node()
	nd := n.at(id)
	nd.tree, nd.tick, nd.published = uint16(t.number), tick, uint16(blocks)
	n.link(id, nd, parent)
	before := uint64(0)
	if parent != 0 {
		before = n.Key(parent)
	}
	nd.mark = t.mark(before, nd.key(0))
	nd.state.Store(versionOf(nd.state.Load()) | newState(blocks, holderset.Single(slot)))
	t.heads.Put(headOf(parent, nd.key(0)), uint64(p))
	t.added(id, nd, 0, blocks)
}

// Cancel gives a new node up.
func (t *Tree) Cancel(p Place) { t.nodes.retired.Put(retired{id: p.Node()}) }
