package radix

import (
	"warmroute/index/internal/hashtable"
)

// Holding is what one holder has of the blocks of some nodes: each by the holder's
// own name for it, an engine's 64-bit hash. It is its writer's alone. Init it
// first.
type Holding struct {
	nodes    *Nodes
	slot     int
	own      hashtable.Index // places by names that are also the nodes'
	foreign  hashtable.Map   // places by other names: another engine stored the block first
	branches hashtable.Map   // by place: nodes behind that block of which it has the first block
}

// Init makes an empty holding of a slot.
func (h *Holding) Init(n *Nodes, slot int) {
	h.nodes, h.slot = n, slot
	h.own.Init(n.arrays.pool)
	h.foreign.Init(n.arrays.pool)
	h.branches.Init(n.arrays.pool)
}

// ahead is how many blocks are touched before they are worked on, so that their
// cache misses overlap; about what a core can have in flight.
const ahead = 32

// Touch starts loading what names need.
func (h *Holding) Touch(names []uint64) {
	sink := uint64(0)
	for _, name := range names {
		sink += h.own.Touch(name)
	}
	h.nodes.sink = sink
}

// Position is where a name is kept, void when the holding changes.
type Position struct {
	at      hashtable.Position
	foreign bool
}

// find is where a name is that is the node's too.
func (h *Holding) find(name uint64) (hashtable.Position, Place) {
	at, p := h.own.Next(name, hashtable.Position{})
	for p != 0 && h.nodes.at(Place(p).Node()).name(Place(p).Offset()) != name {
		at, p = h.own.Next(name, at)
	}
	return at, Place(p)
}

// Locate is where a block is, by its name; 0 when there is none.
func (h *Holding) Locate(name uint64) (Position, Place) {
	at, p := h.find(name)
	if p != 0 || h.foreign.Len() == 0 {
		return Position{at: at}, p
	}
	return Position{foreign: true}, Place(h.foreign.Get(name))
}

// Find is Locate for callers that need the place alone.
func (h *Holding) Find(name uint64) Place {
	_, p := h.Locate(name)
	return p
}

// Forget removes a name that Locate has found.
func (h *Holding) Forget(name uint64, at Position) {
	if at.foreign {
		h.foreign.Delete(name)
	} else {
		h.own.Delete(name, at.at)
	}
}

// ForgetEnd drops names for as long as they are those of a block, the one before
// it in its node and so on, after which the holder does not continue in another
// node. It returns how many.
func (h *Holding) ForgetEnd(p Place, names []uint64) (n int) {
	nd := h.nodes.at(p.Node())
	for off := p.Offset(); off >= 0 && n < len(names); off-- {
		name := names[n]
		if n%ahead == 0 {
			h.Touch(names[n:min(n+ahead, len(names))])
		}
		at, place := h.own.Next(name, hashtable.Position{})
		if Place(place) != At(p.Node(), off) || nd.name(off) != name || off <= int(nd.deepest) && h.Branches(Place(place)) {
			break
		}
		h.own.Delete(name, at)
		n++
	}
	return n
}

// Take removes a name, if it is there.
func (h *Holding) Take(name uint64) {
	if at, p := h.Locate(name); p != 0 {
		h.Forget(name, at)
	}
}

// Name records the holder's names of the blocks from p on, and returns how many: a
// name that stands for another block ends it.
func (h *Holding) Name(p Place, names []uint64) int {
	nd := h.nodes.at(p.Node())
	theirs := nd.names(p.Offset() + len(names))[p.Offset():]
	h.own.Reserve(len(names))
	for i, name := range names {
		if i%ahead == 0 {
			h.Touch(names[i:min(i+ahead, len(names))])
		}
		if theirs[i] != name || h.foreign.Len() > 0 {
			if !h.nameForeign(theirs[i], name, p+Place(i)) {
				return i
			}
		} else if h.own.Lacks(name) { // mostly
			h.own.Put(name, uint64(p)+uint64(i))
		} else if !h.put(name, p+Place(i)) {
			return i
		}
	}
	return len(names)
}

// put gives a name a place where the node has it, unless it has another. There is
// room.
func (h *Holding) put(name uint64, p Place) bool {
	if _, was := h.find(name); was != 0 {
		return false
	}
	h.own.Put(name, uint64(p))
	return true
}

// nameForeign is Name for a holder that calls some blocks otherwise than their
// nodes do.
func (h *Holding) nameForeign(theirs, name uint64, p Place) bool {
	if h.Find(name) != 0 {
		return false
	}
	if theirs == name {
		return h.put(name, p)
	}
	return h.foreign.Put(name, uint64(p)) == 0
}

// Unname removes names.
func (h *Holding) Unname(names []uint64) {
	for _, name := range names {
		h.Take(name)
	}
}

// Held is how many blocks of a node the holder has.
func (h *Holding) Held(node uint32) int { return h.nodes.held(h.nodes.at(node), h.slot) }

// Has reports whether the holder has the block with a key at a place.
func (h *Holding) Has(p Place, key uint64) bool {
	return p != 0 && h.nodes.Has(p, key) && h.Held(p.Node()) > p.Offset()
}

// Add makes the holder one of the blocks from p on, with which it has what is
// before them. They are named. false: there are too many different sets.
func (h *Holding) Add(p Place, blocks int, tick uint16) bool {
	nd := h.nodes.at(p.Node())
	if !h.nodes.toggle(p.Node(), nd, p.Offset(), p.Offset()+blocks, h.slot) {
		return false
	}
	nd.tick = tick
	h.Joined(p)
	return true
}

// Joined counts that the holder has a block now, where that begins a node.
func (h *Holding) Joined(p Place) {
	if parent := h.nodes.at(p.Node()).parent; p.Offset() == 0 && parent != 0 {
		h.branches.Add(uint64(parent), 1)
	}
}

// Leave removes the holder from a node's blocks from an offset on, whose names are
// gone. false: there are too many different sets.
func (h *Holding) Leave(node uint32, from int) bool {
	nd := h.nodes.at(node)
	held := h.nodes.held(nd, h.slot)
	return held <= from || h.leave(node, nd, from, held)
}

func (h *Holding) leave(node uint32, nd *node, from, held int) bool {
	parent := nd.parent
	if !h.nodes.toggle(node, nd, from, held, h.slot) {
		return false
	}
	if from == 0 && parent != 0 {
		h.branches.Add(uint64(parent), -1)
	}
	return true
}

// Branches reports whether the holder continues after a block in another node.
func (h *Holding) Branches(p Place) bool {
	return p.Offset() <= int(h.nodes.at(p.Node()).deepest) && h.branches.Get(uint64(p)) > 0
}

// Follow adds to from the nodes that the holder has blocks of behind those of a
// node from an offset on, and behind them.
func (h *Holding) Follow(node uint32, off int, from map[uint32]int) {
	nd := h.nodes.at(node)
	if int(nd.deepest) < off {
		return
	}
	for id := nd.child; id != 0; {
		child := h.nodes.at(id)
		if _, known := from[id]; !known && child.parent.Offset() >= off && h.nodes.held(child, h.slot) > 0 {
			from[id] = 0
			h.Follow(id, 0, from)
		}
		id = child.next
	}
}

// Each calls f for every block.
func (h *Holding) Each(f func(name uint64, p Place)) {
	h.own.Each(func(place uint64) {
		p := Place(place)
		f(h.nodes.at(p.Node()).name(p.Offset()), p)
	})
	h.foreign.Each(func(name, place uint64) bool {
		f(name, Place(place))
		return true
	})
}

// Len is how many blocks there are.
func (h *Holding) Len() int { return h.own.Len() + h.foreign.Len() }

// Clear removes the blocks of an ended holder from the nodes, in steps of
// so many buckets of names; nothing but Clear and Discard may follow. more: some
// are left. ok is false when there are too many different sets: then it is to be
// tried again.
func (h *Holding) Clear(step int) (more, ok bool) {
	ok = true
	leave := func(place uint64) bool {
		id := Place(place).Node()
		nd := h.nodes.at(id)
		held := h.nodes.held(nd, h.slot)
		done := held == 0 || h.nodes.toggle(id, nd, 0, held, h.slot)
		ok = ok && done
		return done
	}
	more = h.own.Drain(step, leave)
	more = h.foreign.Drain(step, leave) || more
	return more && ok, ok
}

// Trim gives memory back.
func (h *Holding) Trim() {
	h.own.Trim()
	h.foreign.Trim()
	h.branches.Trim()
}

// Discard frees the names.
func (h *Holding) Discard() {
	h.own.Discard()
	h.foreign.Discard()
	h.branches.Discard()
}

// Bytes is the memory of the names.
func (h *Holding) Bytes() int { return h.own.Bytes() + h.foreign.Bytes() + h.branches.Bytes() }
