package radix

import (
	"math/bits"

	"warmroute/index/internal/hashtable"
)

// MaxTrees bounds the trees of Nodes.
const MaxTrees = 1 << 16

// Tree is the nodes of one scope.
type Tree struct {
	nodes  *Nodes
	number int
	secret [2]uint64 // of marks

	heads       hashtable.SharedIndex // nodes by their first keys and the blocks before them
	checkpoints hashtable.SharedIndex // one block in so many of a prompt
	blocks      int

	hand uint32 // where the next eviction begins
}

// Blocks returns how many blocks the nodes have. Writer only.
func (t *Tree) Blocks() int { return t.blocks }

// Bytes returns the memory of the indexes.
func (t *Tree) Bytes() int { return t.heads.Bytes() + t.checkpoints.Bytes() }

// Discard frees the indexes. The tree must not be reachable any more.
func (t *Tree) Discard() {
	t.heads.Discard()
	t.checkpoints.Discard()
}

// Head returns the first block of the node that begins with a key behind a block, or 0.
func (t *Tree) Head(before Place, key uint64) Place {
	n, v, head := t.nodes, t.heads.View(), headOf(before, key)
	at, p := v.Next(head, hashtable.Position{})
	for p != 0 {
		nd := n.at(Place(p).Node())
		if nd.parent == before && nd.key(0) == key {
			break
		}
		at, p = v.Next(head, at)
	}
	return Place(p)
}

// headOf returns the number under which heads has a node.
func headOf(before Place, key uint64) uint64 { return key ^ uint64(before)*spread }

// spread is odd: multiplying by it spreads places over all bits.
const spread = 0x165667919e3779f9

// mark returns the mark of a block with a key behind a block with the key before, 0 for
// none. Without the seed, nobody can aim at the mark of another pair of keys: two have one
// mark once in 2^24 times.
func (t *Tree) mark(before, key uint64) uint32 {
	hi, lo := bits.Mul64(before^t.secret[0], key^t.secret[1])
	return uint32(hi^lo) & (1<<markBits - 1)
}

const markBits = 24

// markAt returns the mark of a node's block behind another one of it.
func (t *Tree) markAt(nd *node, off int) uint32 { return t.mark(nd.key(off-1), nd.key(off)) }

// added counts the blocks from … to - 1 of a node, and indexes the checkpoints.
func (t *Tree) added(id uint32, nd *node, from, to int) {
	t.blocks += to - from
	nd.checkpoints(t.nodes.every, from, to, func(off int) {
		t.checkpoints.Put(nd.key(off), uint64(At(id, off)))
	})
}

// removed uncounts such blocks before they go.
func (t *Tree) removed(id uint32, nd *node, from, to int) {
	t.blocks -= to - from
	nd.checkpoints(t.nodes.every, from, to, func(off int) {
		t.checkpoints.Delete(nd.key(off), uint64(At(id, off)))
	})
}

// evictSample is how many nodes are compared to find an old one.
const evictSample = 16

// OldestEnd returns the oldest of some nodes with blocks that no node follows, and
// how many blocks of it must stay. It skips except and the chosen ones. now is the
// current tick. 0: there is none.
func (t *Tree) OldestEnd(now uint16, chosen map[uint32]int, except uint32) (oldest uint32, end int) {
	n, age, found := t.nodes, uint16(0), 0
	for range n.made {
		if t.hand++; t.hand > n.made {
			t.hand = 1
		}
		nd := n.at(t.hand)
		len := nd.len()
		if _, again := chosen[t.hand]; again || len == 0 || int(nd.tree) != t.number || t.hand == except {
			continue
		}
		floor := n.floor(nd, 0)
		if floor == len {
			continue
		}
		if a := now - nd.tick; oldest == 0 || a > age {
			oldest, age, end = t.hand, a, floor
		}
		if found++; found == evictSample {
			break
		}
	}
	return oldest, end
}

// Behind returns how many blocks a node has behind an offset, and calls f for the
// slots that hold some of them, perhaps more than once.
func (n *Nodes) Behind(id uint32, off int, f func(slot int)) (blocks int) {
	nd := n.at(id)
	n.old = nd.appendRuns(n.old[:0])
	for _, r := range n.old {
		if r.End > off {
			n.sets.Each(r.Set, f)
		}
	}
	return nd.len() - off
}

// link records that a node follows a block.
func (n *Nodes) link(id uint32, nd *node, parent Place) {
	nd.parent, nd.depth, nd.prev, nd.next, nd.child, nd.deepest = parent, 0, 0, 0, 0, -1
	if parent == 0 {
		return
	}
	p := n.at(parent.Node())
	nd.depth = p.depth + uint32(parent.Offset()) + 1
	if nd.next = p.child; nd.next != 0 {
		n.at(nd.next).prev = id
	}
	p.child = id
	p.deepest = max(p.deepest, int16(parent.Offset()))
}

// unlink undoes link. Blocks of the parent that were kept for the node go.
func (n *Nodes) unlink(nd *node) {
	if nd.parent == 0 {
		return
	}
	id := nd.parent.Node()
	p := n.at(id)
	if nd.next != 0 {
		n.at(nd.next).prev = nd.prev
	}
	if nd.prev != 0 {
		n.at(nd.prev).next = nd.next
	} else {
		p.child = nd.next
	}
	if n.bare = p.appendRuns(n.bare[:0]); n.bare[len(n.bare)-1].Set == 0 {
		runs := n.bare
		n.publish(id, p, p.len(), nil, runs)
	}
}

// floor returns how many blocks of a node must stay, at least min: other nodes follow
// the last of them.
func (n *Nodes) floor(nd *node, least int) int {
	if int(nd.deepest) < least {
		return least
	}
	deepest := -1
	for id := nd.child; id != 0; {
		c := n.at(id)
		deepest = max(deepest, c.parent.Offset())
		id = c.next
	}
	nd.deepest = int16(deepest)
	return max(least, deepest+1)
}
