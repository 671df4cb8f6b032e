package radix

import (
	"math/bits"
	"slices"
	"sync/atomic"
	"unsafe"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/holderset"
	"warmroute/index/internal/offheap"
)

// DefaultCheckpointEvery is the distance of checkpoints in blocks. A lookup jumps
// to the last checkpoint that it finds, and reads on from it. At this distance,
// checkpoints cost little to store, and few lines of the cache hold them all.
const DefaultCheckpointEvery = 128

const nodesPerPage = 64

type nodePage [nodesPerPage]node

// Nodes are a shard's nodes, by number from 1. A number is used again only when no
// lookup can have it any more. Init comes first.
type Nodes struct {
	pages   atomic.Pointer[[]*nodePage]
	sets    *holderset.Sets
	every   int     // the distance of checkpoints in blocks
	trees   []*Tree // by number
	made    uint32
	free    []uint32
	retired epoch.Limbo[retired]
	enough  int // retired nodes and arrays before a search through them
	arrays  arrays

	old, out, bare []Run // scratch
	sink           uint64
}

// retired is a node, or the former array of one, that lookups may still be reading.
type retired struct {
	id    uint32 // 0: an array
	words int
	array *uint64
}

// Init makes the nodes empty, held by sets, with a checkpoint every so many blocks.
func (n *Nodes) Init(c *epoch.Clock, p *offheap.Pool, sets *holderset.Sets, every int) {
	n.arrays.pool, n.sets, n.every = p, sets, every
	n.retired.Init(c)
	n.pages.Store(&[]*nodePage{})
}

func (n *Nodes) at(id uint32) *node {
	return &(*n.pages.Load())[id/nodesPerPage][id%nodesPerPage]
}

// Has reports whether a key is at a place.
func (n *Nodes) Has(p Place, key uint64) bool {
	nd := n.at(p.Node())
	return lenOf(nd.state.Load()) > p.Offset() && nd.key(p.Offset()) == key
}

// take returns the number of an unused node, 0 when there is none.
func (n *Nodes) take() (id uint32) {
	if n.retired.Len() >= n.enough {
		n.retired.Reclaim(n.reuse)
		n.enough = n.retired.Len() + nodesPerPage
	}
	if k := len(n.free); k > 0 {
		id = n.free[k-1]
		n.free = n.free[:k-1]
		return id
	}
	if n.made == maxNodes {
		return 0
	}
	n.made++
	if id = n.made; int(id/nodesPerPage) == len(*n.pages.Load()) {
		pages := append(*n.pages.Load(), new(nodePage)) // readers hold the shorter slice
		n.pages.Store(&pages)
	}
	return id
}

func (n *Nodes) reuse(r retired) {
	if r.id == 0 {
		n.arrays.put(r.array, r.words)
		return
	}
	nd := n.at(r.id)
	n.arrays.put(nd.keys.Swap(nil), nd.width()*int(nd.capacity))
	nd.runs.Store(nil)
	nd.capacity = 0
	n.free = append(n.free, r.id)
}

// Key returns the key of a block. Only the writer calls it and all methods below.
func (n *Nodes) Key(p Place) uint64 { return n.at(p.Node()).key(p.Offset()) }

// Tree returns the number of a block's tree.
func (n *Nodes) Tree(p Place) int { return int(n.at(p.Node()).tree) }

// Before returns the place before a block, 0 before the first block of a prompt.
func (n *Nodes) Before(p Place) Place {
	if p.Offset() > 0 {
		return p - 1
	}
	return n.at(p.Node()).parent
}

// Depth returns how many blocks of a prompt are before a node.
func (n *Nodes) Depth(id uint32) int { return int(n.at(id).depth) }

// Common returns how many blocks from a place on have the given keys.
func (n *Nodes) Common(p Place, keys []uint64) (same int) {
	have := n.at(p.Node()).all()[p.Offset():]
	for same < min(len(keys), len(have)) && have[same] == keys[same] {
		same++
	}
	return same
}

// IsEnd reports whether a block is the last of its node, and the node has room for
// another.
func (n *Nodes) IsEnd(p Place) bool {
	len := n.at(p.Node()).len()
	return p.Offset() == len-1 && len < MaxNode
}

// BlocksOf returns how many blocks a node has.
func (n *Nodes) BlocksOf(id uint32) int { return n.at(id).len() }

// Bytes returns the memory of the nodes and their arrays.
func (n *Nodes) Bytes() (bytes int) {
	bytes = len(*n.pages.Load()) * int(unsafe.Sizeof(nodePage{}))
	for id := uint32(1); id <= n.made; id++ {
		nd := n.at(id)
		bytes += 8*nd.width()*int(nd.capacity) + 8*len(nd.runWords())
	}
	return bytes + 8*n.arrays.words
}

// Clear removes the blocks of ended holders, by their slots, from some nodes, from a number on,
// and returns where to go on, 0 behind the last node. A step is a node, or a holder's blocks there. ok is false when there are too many
// different sets, and the caller tries again. Their holdings are only discarded then.
func (n *Nodes) Clear(ended *holderset.Mask, from uint32, steps int) (next uint32, ok bool) {
	var slots []int
	ok = true
	for next = max(1, from); next <= n.made && steps > 0; next++ {
		nd := n.at(next)
		slots = n.sets.AppendIn(slots[:0], nd.view().set, ended)
		for _, slot := range slots {
			ok = n.toggle(next, nd, 0, n.held(nd, slot), slot) && ok
		}
		steps -= 1 + len(slots)
	}
	if next > n.made {
		next = 0
	}
	return next, ok
}

// Trim returns unused memory.
func (n *Nodes) Trim() {
	n.retired.Reclaim(n.reuse)
	n.arrays.trim()
	for _, t := range n.trees {
		if t != nil {
			t.heads.Trim()
			t.checkpoints.Trim()
		}
	}
}

// Add makes a tree, and returns its number.
func (n *Nodes) Add(t *Tree, seed uint64) (number int) {
	if number = slices.Index(n.trees, nil); number < 0 {
		number = len(n.trees)
		n.trees = append(n.trees, nil)
	}
	t.nodes, t.number, t.secret = n, number, [2]uint64{seed, bits.RotateLeft64(seed*spread, 32)}
	t.heads.Init(n.arrays.pool, seed)
	t.checkpoints.Init(n.arrays.pool, seed)
	n.trees[number] = t
	return number
}

// Drop removes an empty tree, whose number is used again.
func (n *Nodes) Drop(t *Tree) { n.trees[t.number] = nil }
