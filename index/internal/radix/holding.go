package radix

import (
	"warmroute/index/internal/hashtable"
)

// Holding is one holder's part of some nodes: its blocks, by its own hashes of
// them. Only its writer uses it. Init comes first.
type Holding struct {
	nodes    *Nodes
	slot     int
	own      hashtable.Index // places by hashes that are also the nodes'
	foreign  hashtable.Map   // places by other hashes: another holder stored the block first
	branches hashtable.Map   // by place of a block: how many nodes behind it have a first block of the holder
}

// Init makes an empty holding of a slot.
func (h *Holding) Init(n *Nodes, slot int) {
	h.nodes, h.slot = n, slot
	h.own.Init(n.arrays.pool)
	h.foreign.Init(n.arrays.pool)
	h.branches.Init(n.arrays.pool)
}

// ahead is how many blocks are touched before the work on them, so that their
// cache misses overlap; about as many as a core can have in flight.
const ahead = 32

// Touch starts loading the entries of hashes.
func (h *Holding) Touch(hashes []uint64) {
	sink := uint64(0)
	for _, hash := range hashes {
		sink += h.own.Touch(hash)
	}
	h.nodes.sink = sink
}

// Position is the position of a hash's entry, void when the holding changes.
type Position struct {
	at      hashtable.Position
	foreign bool
}

// Locate returns the position of a hash and the place of its block, or 0.
func (h *Holding) Locate(hash uint64) (Position, Place) {
	at, p := h.own.Next(hash, hashtable.Position{})
	for p != 0 && h.nodes.at(Place(p).Node()).hash(Place(p).Offset()) != hash {
		at, p = h.own.Next(hash, at)
	}
	if p != 0 || h.foreign.Len() == 0 {
		return Position{at: at}, Place(p)
	}
	return Position{foreign: true}, Place(h.foreign.Get(hash))
}

// Find returns the place of a hash's block, or 0.
func (h *Holding) Find(hash uint64) Place {
	_, p := h.Locate(hash)
	return p
}

// HashAt returns the holder's hash of the block at p, false if it does not have the block. It may
// read all hashes of blocks that others announce by other hashes.
func (h *Holding) HashAt(p Place) (hash uint64, ok bool) {
	nd := h.nodes.at(p.Node())
	if h.nodes.held(nd, h.slot) <= p.Offset() {
		return 0, false
	}
	if hash = nd.hash(p.Offset()); h.Find(hash) == p {
		return hash, true
	}
	h.foreign.Each(func(theirs, place uint64) (keep bool) {
		if Place(place) == p {
			hash, ok = theirs, true
		}
		return true
	})
	return hash, ok
}

// Forget removes a hash that Locate has found.
func (h *Holding) Forget(hash uint64, at Position) {
	if at.foreign {
		h.foreign.Delete(hash)
	} else {
		h.own.Delete(hash, at.at)
	}
}

// ForgetEnd drops hashes as long as they are of a block at p, the one before it in
// its node and so on, and the holder does not continue in another node after the
// block. It returns how many it has dropped.
func (h *Holding) ForgetEnd(p Place, hashes []uint64) (n int) {
	nd := h.nodes.at(p.Node())
	for off := p.Offset(); off >= 0 && n < len(hashes); off-- {
		hash := hashes[n]
		if n%ahead == 0 {
			h.Touch(hashes[n:min(n+ahead, len(hashes))])
		}
		at, place := h.own.Next(hash, hashtable.Position{})
		if Place(place) != At(p.Node(), off) || nd.hash(off) != hash || off <= int(nd.deepest) && h.Branches(Place(place)) {
			break
		}
		h.own.Delete(hash, at)
		n++
	}
	return n
}

// Take removes a hash, if the holding has it.
func (h *Holding) Take(hash uint64) {
	if at, p := h.Locate(hash); p != 0 {
		h.Forget(hash, at)
	}
}

// Record adds the holder's hashes of the blocks from p on, and returns how many:
// it ends at a hash of another block.
func (h *Holding) Record(p Place, hashes []uint64) int {
	nd := h.nodes.at(p.Node())
	theirs := nd.hashes(p.Offset() + len(hashes))[p.Offset():]
	h.own.Reserve(len(hashes))
	for i, hash := range hashes {
		if i%ahead == 0 {
			h.Touch(hashes[i:min(i+ahead, len(hashes))])
		}
		if theirs[i] == hash && h.foreign.Len() == 0 && h.own.Lacks(hash) { // mostly
			h.own.Put(hash, uint64(p)+uint64(i))
		} else if !h.record(theirs[i], hash, p+Place(i)) {
			return i
		}
	}
	return len(hashes)
}

// record adds a hash of the block at p, unless the holder has it of another block. The node
// has theirs. The index must have room.
func (h *Holding) record(theirs, hash uint64, p Place) bool {
	switch {
	case h.Find(hash) != 0:
		return false
	case theirs == hash:
		h.own.Put(hash, uint64(p))
		return true
	}
	return h.foreign.Put(hash, uint64(p)) == 0
}

// Erase removes hashes.
func (h *Holding) Erase(hashes []uint64) {
	for _, hash := range hashes {
		h.Take(hash)
	}
}

// Held returns how many blocks of a node the holder has.
func (h *Holding) Held(node uint32) int { return h.nodes.held(h.nodes.at(node), h.slot) }

// Has reports whether the holder has the block with a key at a place.
func (h *Holding) Has(p Place, key uint64) bool {
	return p != 0 && h.nodes.Has(p, key) && h.Held(p.Node()) > p.Offset()
}

// Add makes the holder one of the holders of blocks from p on. It has the block
// before them, and their hashes are recorded. false: there are too many different
// sets.
func (h *Holding) Add(p Place, blocks int, tick uint16) bool {
	nd := h.nodes.at(p.Node())
	if !h.nodes.toggle(p.Node(), nd, p.Offset(), p.Offset()+blocks, h.slot) {
		return false
	}
	nd.tick = tick
	h.Joined(p)
	return true
}

// Joined counts that the holder now has a block, if that begins a node.
func (h *Holding) Joined(p Place) {
	if parent := h.nodes.at(p.Node()).parent; p.Offset() == 0 && parent != 0 {
		h.branches.Add(uint64(parent), 1)
	}
}

// Leave removes the holder from a node's blocks from an offset on. Their hashes
// are erased already. false: there are too many different sets.
func (h *Holding) Leave(node uint32, from int) bool {
	nd := h.nodes.at(node)
	held, parent := h.nodes.held(nd, h.slot), nd.parent
	if held <= from {
		return true
	}
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

// Follow adds to from, with offset 0, every node that the holder has behind a
// node's blocks from an offset on.
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

// Each calls f for every hash and place.
func (h *Holding) Each(f func(hash uint64, p Place)) {
	h.own.Each(func(place uint64) {
		p := Place(place)
		f(h.nodes.at(p.Node()).hash(p.Offset()), p)
	})
	h.foreign.Each(func(hash, place uint64) bool {
		f(hash, Place(place))
		return true
	})
}

// Len returns the number of blocks.
func (h *Holding) Len() int { return h.own.Len() + h.foreign.Len() }

// Trim returns unused memory.
func (h *Holding) Trim() {
	h.own.Trim()
	h.foreign.Trim()
	h.branches.Trim()
}

// Discard frees the hashes.
func (h *Holding) Discard() {
	h.own.Discard()
	h.foreign.Discard()
	h.branches.Discard()
}

// Bytes returns the memory of the hashes.
func (h *Holding) Bytes() int { return h.own.Bytes() + h.foreign.Bytes() + h.branches.Bytes() }
