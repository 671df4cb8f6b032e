package radix

import (
	"fmt"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
)

// census has the counts that check makes of nodes.
type census struct {
	references map[holderset.ID]uint32   // to interned sets
	places     []map[uint64][]Place      // by tree and key
	held       map[int]int               // blocks by slot
	branches   map[int]map[uint64]uint64 // by slot and place
	blocks     []int                     // by tree
	heads      []int                     // nodes by tree
	checks     []int                     // checkpoints by tree
	children   map[uint32]int            // nodes that name a node their parent
}

// check reports an error in nodes that have no writer: it checks the statements
// of the package's comments, and the counters. live reports which slots lookups
// may see.
func (n *Nodes) check(live func(slot int) bool) (*census, error) {
	c := &census{references: map[holderset.ID]uint32{}, held: map[int]int{}, branches: map[int]map[uint64]uint64{},
		blocks: make([]int, len(n.trees)), heads: make([]int, len(n.trees)), checks: make([]int, len(n.trees)), children: map[uint32]int{}}
	for range n.trees {
		c.places = append(c.places, map[uint64][]Place{})
	}
	for id := uint32(1); id <= n.made; id++ {
		nd := n.at(id)
		if nd.len() == 0 {
			if nd.state.Load()&(stateRuns|stateSet) != 0 {
				return nil, fmt.Errorf("node %d has no blocks but holders", id)
			}
			continue
		}
		for _, look := range []func(uint32, *node) error{n.checker(c).array, n.checker(c).runs, n.checker(c).family, n.checker(c).indexes} {
			if err := look(id, nd); err != nil {
				return nil, fmt.Errorf("node %d of %d blocks: %w", id, nd.len(), err)
			}
		}
		for slot, err := range n.checker(c).branches(nd, live) {
			if err != nil {
				return nil, fmt.Errorf("node %d, slot %d: %w", id, slot, err)
			}
		}
	}
	return c, n.checker(c).counts()
}

type checker struct {
	n *Nodes
	c *census
}

func (n *Nodes) checker(c *census) checker { return checker{n, c} }

// array checks the keys and their memory.
func (k checker) array(id uint32, nd *node) error {
	n := nd.len()
	if n > int(nd.published) || nd.published > nd.capacity || n > MaxNode {
		return fmt.Errorf("%d published of capacity %d", nd.published, nd.capacity)
	}
	if int(nd.tree) >= len(k.n.trees) || k.n.trees[nd.tree] == nil {
		return fmt.Errorf("tree %d is not there", nd.tree)
	}
	k.c.heads[nd.tree]++
	places := k.c.places[nd.tree]
	for off, key := range nd.all() {
		for _, other := range places[key] {
			if k.n.Before(other) == k.n.Before(At(id, off)) {
				return fmt.Errorf("key %x at %d is also at %d of node %d, behind the same block", key, off, other.Offset(), other.Node())
			}
		}
		if key == 0 {
			return fmt.Errorf("key 0 at %d", off)
		}
		places[key] = append(places[key], At(id, off))
		k.c.blocks[nd.tree]++
	}
	return nil
}

// runs checks that runs rise, and that their sets shrink: to one holder at least.
func (k checker) runs(id uint32, nd *node) error {
	s := nd.state.Load()
	if s&stateRuns != 0 && (len(nd.runWords()) < 2 || setOf(s) != 0) {
		return fmt.Errorf("state %x with runs %v", s, nd.runWords())
	}
	runs, from := nd.appendRuns(nil), 0
	for i, r := range runs {
		if r.End <= from {
			return fmt.Errorf("runs %v do not rise", runs)
		}
		if i > 0 && (r.Set == runs[i-1].Set || !k.covers(runs[i-1].Set, r.Set)) {
			return fmt.Errorf("runs %v do not shrink", runs)
		}
		if r.Set == 0 {
			return fmt.Errorf("runs %v: nobody has blocks", runs)
		}
		if r.Set >= holderset.FirstInterned {
			k.c.references[r.Set]++
		}
		if want := k.markBehind(nd, r.End); r.mark != want {
			return fmt.Errorf("the run up to %d has mark %x, want %x", r.End, r.mark, want)
		}
		k.n.sets.Each(r.Set, func(slot int) { k.c.held[slot] += r.End - from })
		from = r.End
	}
	return nil
}

// markBehind returns the mark of a node's block at an offset behind another, 0 for none.
func (k checker) markBehind(nd *node, off int) uint32 {
	if off == 0 || off >= nd.len() {
		return 0
	}
	return k.n.trees[nd.tree].markAt(nd, off)
}

// covers reports whether a set has all of another.
func (k checker) covers(all, some holderset.ID) bool {
	for i := range holderset.MaskWords {
		if k.n.sets.Word(some, i)&^k.n.sets.Word(all, i) != 0 {
			return false
		}
	}
	return true
}

// indexes checks that a node can be found.
func (k checker) indexes(id uint32, nd *node) error {
	t := k.n.trees[nd.tree]
	if got := t.Head(nd.parent, nd.key(0)); got != At(id, 0) {
		return fmt.Errorf("its first key leads to %x", got)
	}
	before := uint64(0)
	if nd.parent != 0 {
		before = k.n.Key(nd.parent)
	}
	if want := t.mark(before, nd.key(0)); nd.mark != want {
		return fmt.Errorf("its mark is %x, want %x", nd.mark, want)
	}
	for off := range nd.len() {
		if (int(nd.depth)+off+1)%k.n.every != 0 {
			continue
		}
		k.c.checks[nd.tree]++
		if !k.n.listed(&t.checkpoints, At(id, off)) {
			return fmt.Errorf("the checkpoint of offset %d is not indexed", off)
		}
	}
	return nil
}

// listed reports whether an index of blocks by their keys has a place.
func (n *Nodes) listed(x *hashtable.SharedIndex, p Place) bool {
	v := x.View()
	at, found := v.Next(n.Key(p), hashtable.Position{})
	for found != 0 && Place(found) != p {
		at, found = v.Next(n.Key(p), at)
	}
	return found != 0
}

// family checks that parents and children refer to each other.
func (k checker) family(id uint32, nd *node) error {
	listed := 0
	for child, prev := nd.child, uint32(0); child != 0; prev, child = child, k.n.at(child).next {
		c := k.n.at(child)
		if c.len() == 0 || c.parent.Node() != id || c.prev != prev {
			return fmt.Errorf("child %d has %d blocks, the parent %x, and %d before it in the list", child, c.len(), c.parent, c.prev)
		}
		if c.parent.Offset() > int(nd.deepest) {
			return fmt.Errorf("child %d follows offset %d, the deepest is said to be %d", child, c.parent.Offset(), nd.deepest)
		}
		listed++
	}
	k.c.children[id] -= listed
	if nd.parent == 0 {
		if nd.depth != 0 {
			return fmt.Errorf("it begins prompts at depth %d", nd.depth)
		}
		return nil
	}
	p, off := k.n.at(nd.parent.Node()), nd.parent.Offset()
	if off >= p.len() || p.tree != nd.tree || int(nd.depth) != int(p.depth)+off+1 {
		return fmt.Errorf("it is at depth %d behind offset %d of node %d, which has %d blocks from %d", nd.depth, off, nd.parent.Node(), p.len(), p.depth)
	}
	k.c.children[nd.parent.Node()]++
	return nil
}

// branches checks that a holder of a node has the block before it.
func (k checker) branches(nd *node, live func(slot int) bool) map[int]error {
	wrong := map[int]error{}
	if nd.parent == 0 {
		return wrong
	}
	p, off := k.n.at(nd.parent.Node()), nd.parent.Offset()
	k.n.sets.Each(nd.appendRuns(nil)[0].Set, func(slot int) {
		if k.c.branches[slot] == nil {
			k.c.branches[slot] = map[uint64]uint64{}
		}
		k.c.branches[slot][uint64(nd.parent)]++
		if held := k.n.held(p, slot); live(slot) && held <= off {
			wrong[slot] = fmt.Errorf("it holds %d blocks of the parent, not offset %d", held, off)
		}
	})
	return wrong
}

func (k checker) counts() error {
	for id, more := range k.c.children {
		if more != 0 {
			return fmt.Errorf("node %d has %d children that it does not list", id, more)
		}
	}
	for i, t := range k.n.trees {
		if t == nil {
			continue
		}
		if blocks := k.c.blocks[i]; t.blocks != blocks || t.heads.Len() != k.c.heads[i] || t.checkpoints.Len() != k.c.checks[i] {
			return fmt.Errorf("tree %d counts %d blocks, %d heads and %d checkpoints; there are %d, %d and %d",
				i, t.blocks, t.heads.Len(), t.checkpoints.Len(), blocks, k.c.heads[i], k.c.checks[i])
		}
	}
	return nil
}

// check reports an error in a holding, given the census of its nodes: each block
// has one hash, which leads to it, and the branches are right.
func (h *Holding) check(c *census) (err error) {
	named := map[Place]bool{}
	h.Each(func(hash uint64, p Place) {
		switch held := h.Held(p.Node()); {
		case p.Offset() >= held:
			err = fmt.Errorf("hash %x is offset %d of node %d, of which it has %d", hash, p.Offset(), p.Node(), held)
		case named[p]:
			err = fmt.Errorf("two hashes of offset %d of node %d", p.Offset(), p.Node())
		case h.Find(hash) != p:
			err = fmt.Errorf("hash %x of offset %d of node %d leads to %x", hash, p.Offset(), p.Node(), h.Find(hash))
		}
		named[p] = true
	})
	if err == nil && (len(named) != c.held[h.slot] || h.Len() != len(named)) {
		err = fmt.Errorf("%d hashes counted, %d there are, of %d blocks", h.Len(), len(named), c.held[h.slot])
	}
	h.foreign.Each(func(hash, place uint64) bool {
		if p := Place(place); h.nodes.at(p.Node()).hash(p.Offset()) == hash {
			err = fmt.Errorf("hash %x is the node's, and kept as foreign", hash)
		}
		return true
	})
	if want := c.branches[h.slot]; err == nil && !sameCounts(&h.branches, want) {
		err = fmt.Errorf("%d places counted behind which it goes on, there are %d", h.branches.Len(), len(want))
	}
	return err
}

func sameCounts(m *hashtable.Map, want map[uint64]uint64) bool {
	same := m.Len() == len(want)
	m.Each(func(place, count uint64) bool {
		same = same && want[place] == count
		return true
	})
	return same
}
