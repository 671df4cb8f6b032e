package ends

import (
	"slices"

	"warmroute/index/internal/radix"
)

// Held records which blocks one holder has in its groups other than full attention,
// wherever it has the block of full attention too. One writer uses it, from NewHeld to
// Clear.
type Held struct {
	table *Table
	nodes *radix.Nodes
	full  *radix.Holding
	slot  int
	shape *Shape

	parts  map[uint32]*part    // by node
	behind map[uint32][]uint32 // by node: the nodes with parts that follow one of its blocks

	dirty  []*part
	counts []int // scratch, by spec
}

// part records the holder's blocks along one node.
type part struct {
	node   uint32
	parent radix.Place
	depth  int
	specs  []bitmap // by spec: the blocks of the node that end a block of the spec
	ends   bitmap   // the blocks with which a hit may end, as in the table

	from, to int // the offsets whose bits changed, while the part is dirty
}

// NewHeld returns an empty record of the holder with a slot.
func NewHeld(t *Table, n *radix.Nodes, full *radix.Holding, slot int, s *Shape) *Held {
	return &Held{table: t, nodes: n, full: full, slot: slot, shape: s,
		parts: map[uint32]*part{}, behind: map[uint32][]uint32{}, counts: make([]int, len(s.Specs))}
}

// Put records which specs, as bits, hold the block that ends where full attention's block
// at a place ends. The holder has that block. The table has the change after Settle.
func (h *Held) Put(p radix.Place, specs uint32) {
	at := h.parts[p.Node()]
	if at == nil {
		if specs == 0 && !h.shape.free() {
			return
		}
		at = h.part(p.Node())
	}
	for i := range at.specs {
		at.specs[i].put(p.Offset(), specs>>i&1 != 0)
	}
	if at.to == 0 {
		h.dirty = append(h.dirty, at)
		at.from = p.Offset()
	}
	at.from, at.to = min(at.from, p.Offset()), max(at.to, p.Offset()+1)
}

func (h *Held) part(node uint32) *part {
	p := &part{node: node, parent: h.nodes.Before(radix.At(node, 0)), depth: h.nodes.Depth(node), specs: make([]bitmap, len(h.shape.Specs))}
	h.parts[node] = p
	if p.parent != 0 {
		h.behind[p.parent.Node()] = append(h.behind[p.parent.Node()], node)
	}
	return p
}

// Settle brings the table up to date with all Puts before it.
func (h *Held) Settle() {
	for _, p := range h.dirty {
		from, to := p.from, p.to
		p.from, p.to = 0, 0
		h.work(p, from, p.depth+to)
	}
	h.dirty = h.dirty[:0]
}

// work computes a part's ends from an offset on, and the ends of the parts behind it as
// far as they depend on blocks before the depth changed.
func (h *Held) work(p *part, from, changed int) {
	for i := range h.shape.Specs {
		h.counts[i] = h.held(p, from, i)
	}
	open := uint32(1)<<len(h.shape.Specs) - 1 // the specs to which a block before changed may still matter
	off, last := from, h.full.Held(p.node)
	start, is := from, false // the offsets from start on differ from the table: they become is
	for ; off < last && open != 0; off++ {
		now := h.step(p, off)
		same := now == p.ends.has(off)
		if now != is || same {
			h.change(p, start, off, is)
			start, is = off, now
		}
		if same {
			start = off + 1
		}
		if p.depth+off >= changed {
			open &= h.depend(p.depth+off-changed+1, p.depth+off+1)
		}
	}
	h.change(p, start, off, is)
	for _, node := range h.behind[p.node] {
		if c := h.parts[node]; c.parent.Offset() >= from && c.parent.Offset() < off {
			h.work(c, 0, changed)
		}
	}
}

// depend returns the specs, as bits, for which a later end may need a block that begins
// before blocks ahead of end. The last counted block ends at end.
func (h *Held) depend(before, end int) (specs uint32) {
	for i := range h.shape.Specs {
		s := &h.shape.Specs[i]
		gap := end%s.Stride == 0 && h.counts[i] == 0
		if !gap && before < s.reach() && (s.Chunk == 0 || end%s.Chunk != 0) {
			specs |= 1 << i
		}
	}
	return specs
}

// step counts the block at an offset, and reports whether a hit may end with it.
func (h *Held) step(p *part, off int) bool {
	at := p.depth + off + 1
	ok := at%h.shape.Step == 0
	for i := range h.shape.Specs {
		if s := &h.shape.Specs[i]; at%s.Stride == 0 {
			h.count(p, off, i)
			ok = ok && h.counts[i] >= s.need(at)
		}
	}
	return ok
}

// count adds the block at an offset to the blocks that a spec has without a gap.
func (h *Held) count(p *part, off, spec int) {
	if p.specs[spec].has(off) {
		h.counts[spec]++
	} else {
		h.counts[spec] = 0
	}
}

// held returns how many blocks a spec has without a gap before an offset, at most as many
// as an end can need.
func (h *Held) held(p *part, off, spec int) (n int) {
	s := &h.shape.Specs[spec]
	at := (p.depth+off)/s.Stride*s.Stride - 1
	for most := s.reach() / s.Stride; at >= 0 && n < most; at -= s.Stride {
		for p != nil && at < p.depth {
			p = h.parts[p.parent.Node()]
		}
		if p == nil || !p.specs[spec].has(at-p.depth) {
			break
		}
		n++
	}
	return n
}

// change adds offsets to a part's ends and to the table, or removes them.
func (h *Held) change(p *part, from, to int, on bool) {
	if from >= to {
		return
	}
	for off := from; off < to; off++ {
		p.ends.put(off, on)
	}
	h.table.put(p.node, from, to, h.slot, on)
}

// Cut removes a node's blocks from an offset on. The caller is about to remove the blocks
// of full attention there and all behind them.
func (h *Held) Cut(node uint32, from int) {
	p := h.parts[node]
	if p == nil {
		return
	}
	if p.to > 0 {
		h.Settle()
	}
	h.hide(p, from)
	empty := true
	for i := range p.specs {
		p.specs[i].cut(from)
		empty = empty && p.specs[i].empty()
	}
	if from > 0 && (!empty || h.shape.free()) {
		return
	}
	delete(h.parts, node)
	if p.parent == 0 {
		return
	}
	at := p.parent.Node()
	if h.behind[at] = slices.DeleteFunc(h.behind[at], func(other uint32) bool { return other == node }); len(h.behind[at]) == 0 {
		delete(h.behind, at)
	}
}

// hide removes the holder from a part's ends, from an offset on.
func (h *Held) hide(p *part, from int) {
	for off := p.ends.next(from, true); off >= 0; off = p.ends.next(off, true) {
		to := p.ends.next(off, false)
		h.table.put(p.node, off, to, h.slot, false)
		off = to
	}
	p.ends.cut(from)
}

// Clear removes the holder from the table.
func (h *Held) Clear() {
	for _, p := range h.parts {
		h.hide(p, 0)
	}
	clear(h.parts)
	clear(h.behind)
	h.dirty = h.dirty[:0]
}
