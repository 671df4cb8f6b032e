package hybrid

import (
	"math/bits"
	"slices"
	"sync/atomic"

	"warmroute/index/internal/ends"
	"warmroute/index/internal/holderset"
	"warmroute/index/internal/radix"
)

// Shard follows members along the nodes of one group of the index: it has the ends of their
// hits, and the methods by which a lookup finds the hits. The shard's writer calls its
// methods; lookups call Narrow. Holders are slots. Init comes first.
type Shard struct {
	ends    ends.Table
	nodes   *radix.Nodes
	methods atomic.Pointer[[]methodSlots] // of the slots of members
	slots   []followed
	none    followed // of slots that have never followed a member
}

// followed is the member in a slot; its plan is nil if there is none.
type followed struct {
	member *Member
	plan   *Plan
	ends   *ends.Held // the ends of the other groups, with the method byEnds
}

// methodSlots are the slots, as bits, whose hits one method finds. It is immutable.
type methodSlots struct {
	method
	slots []uint64
}

// Init makes the shard empty, for a group with nodes.
func (s *Shard) Init(sets *holderset.Sets, nodes *radix.Nodes) {
	s.ends.Init(sets)
	s.nodes = nodes
	s.methods.Store(&[]methodSlots{})
}

// Ends returns the ends along the nodes.
func (s *Shard) Ends() *ends.Table { return &s.ends }

// at returns the member that a slot follows, if any.
func (s *Shard) at(slot int) *followed {
	if slot < len(s.slots) {
		return &s.slots[slot]
	}
	return &s.none
}

// Follows reports whether a slot follows a member by its current plan; with nil, whether it
// follows none.
func (s *Shard) Follows(slot int, m *Member) bool {
	f := s.at(slot)
	return f.member == m && (m == nil || f.plan == m.joined.Load())
}

// HasEnds reports whether the shard keeps ends of a slot.
func (s *Shard) HasEnds(slot int) bool { return s.at(slot).ends != nil }

// Follow makes the groups of a member decide a slot's hits; with nil, no groups do. blocks
// are the slot's in the nodes. Release comes first.
func (s *Shard) Follow(slot int, m *Member, blocks *radix.Holding) {
	if m == nil {
		s.setMethod(slot, method{})
		return
	}
	s.slots = append(s.slots, make([]followed, max(0, slot+1-len(s.slots)))...)
	f := &s.slots[slot]
	*f = followed{member: m, plan: m.joined.Load()}
	if f.plan.method.by == byEnds {
		f.ends = ends.NewHeld(&s.ends, s.nodes, blocks, slot, f.plan.shape)
		blocks.Each(func(hash uint64, p radix.Place) { f.ends.Put(p, f.specs(hash)) })
		f.ends.Settle()
	}
	s.setMethod(slot, f.plan.method)
}

// Release drops the blocks of a slot in groups: the slot hits nothing until Follow.
func (s *Shard) Release(slot int) {
	f := s.at(slot)
	if f.ends != nil {
		f.ends.Clear()
	}
	*f = followed{}
}

// specs returns which specs of the shape hold a block.
func (f *followed) specs(hash uint64) uint32 { return f.plan.specsOf(f.member.held.groups[hash]) }

// Stored reads which groups hold the blocks that the nodes now have at p.
func (s *Shard) Stored(slot int, p radix.Place, hashes []uint64) {
	f := s.at(slot)
	if f.ends == nil {
		return
	}
	for k, hash := range hashes {
		f.ends.Put(p+radix.Place(k), f.specs(hash))
	}
	f.ends.Settle()
}

// Settle reads again which groups hold the hashes' blocks that the slot has in the nodes.
func (s *Shard) Settle(slot int, blocks *radix.Holding, hashes []uint64) {
	f := s.at(slot)
	if f.ends == nil {
		return
	}
	for _, hash := range hashes {
		if p := blocks.Find(hash); p != 0 {
			f.ends.Put(p, f.specs(hash))
		}
	}
	f.ends.Settle()
}

// Cut drops a node's blocks from an offset on: the nodes are about to lose them.
func (s *Shard) Cut(slot int, node uint32, from int) {
	if f := s.at(slot); f.ends != nil {
		f.ends.Cut(node, from)
	}
}

// setMethod sets how a slot's hits are found; byRule: the shard does not find them.
func (s *Shard) setMethod(slot int, w method) {
	var next []methodSlots
	for _, o := range *s.methods.Load() {
		if slot>>6 < len(o.slots) && o.slots[slot>>6]>>(slot&63)&1 != 0 {
			o.slots = slices.Clone(o.slots)
			o.slots[slot>>6] &^= 1 << (slot & 63)
		}
		if o.method == w || slices.ContainsFunc(o.slots, func(word uint64) bool { return word != 0 }) {
			next = append(next, o)
		}
	}
	if w.by != byRule {
		i := slices.IndexFunc(next, func(o methodSlots) bool { return o.method == w })
		if i < 0 {
			i = len(next)
			next = append(next, methodSlots{method: w})
		}
		o := &next[i]
		o.slots = append(slices.Clone(o.slots), make([]uint64, max(0, slot>>6+1-len(o.slots)))...)
		o.slots[slot>>6] |= 1 << (slot & 63)
	}
	s.methods.Store(&next)
}

// Narrowing is the result of a search in the nodes of a shard. Narrow reduces the blocks that
// slots hold to the blocks that they hit.
type Narrowing struct {
	Path   []radix.Stretch // the nodes that the prompt goes through
	Tokens int             // the length of the prompt
	Block  int32           // tokens of a block
	Plain  bool            // narrow also members without other groups

	First   []uint64 // the slots that hold the first block, as bits
	Depth   []int32  // by slot: the blocks that it holds, then the blocks that it hits
	Held    []int32  // by slot, for lookups that narrow: the blocks that it holds
	Decided []uint64 // the slots that were narrowed, as bits; clear before

	left []uint64 // scratch
}

// Narrow replaces the depth of each member with its hit as far as keys were looked up.
func (s *Shard) Narrow(n *Narrowing) {
	methods := *s.methods.Load()
	if len(methods) == 0 {
		return
	}
	copy(n.Held, n.Depth)
	if len(n.left) < len(n.First) {
		n.left = make([]uint64, 2*len(n.First))
	}
	for i := range methods {
		w := &methods[i]
		slots, some := n.left[:len(n.First)], uint64(0)
		for k := range slots {
			slots[k] = 0
			if k < len(w.slots) {
				slots[k] = n.First[k] & w.slots[k]
			}
			some |= slots[k]
		}
		switch {
		case some == 0:
		case w.by == byEnds:
			s.narrowEnds(n, w, slots)
		case n.Plain:
			for k, word := range slots {
				n.Decided[k] |= word
				for ; word != 0; word &= word - 1 {
					depth := &n.Depth[k<<6+bits.TrailingZeros64(word)]
					*depth = w.hit(*depth, n.Tokens, n.Block)
				}
			}
		}
	}
}

// narrowEnds narrows slots by the ends of their other groups. It uses slots up.
func (s *Shard) narrowEnds(n *Narrowing, w *methodSlots, slots []uint64) {
	limit := w.limit(n.Tokens, n.Block)
	for i, word := range slots {
		n.Decided[i] |= word
		for ; word != 0 && w.fullDrops > 0; word &= word - 1 {
			depth := &n.Depth[i<<6+bits.TrailingZeros64(word)]
			*depth = min(*depth, limit) - w.fullDrops
		}
	}
	s.ends.Narrow(n.Path, limit-w.fullDrops, w.endDrops, slots, n.Depth)
	for i, word := range slots { // these slots have no end
		for ; word != 0; word &= word - 1 {
			n.Depth[i<<6+bits.TrailingZeros64(word)] = 0
		}
	}
	if w.replay == 0 {
		return
	}
	for i := range min(len(slots), len(w.slots)) {
		for word := n.First[i] & w.slots[i]; word != 0; word &= word - 1 {
			slot := i<<6 + bits.TrailingZeros64(word)
			if n.Depth[slot] <= w.replay {
				n.Depth[slot] = 0
			}
		}
	}
}
