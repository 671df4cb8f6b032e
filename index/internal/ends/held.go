package ends

import (
	"slices"

	"warmroute/index/internal/radix"
)

// Held is what one holder has of its groups other than full attention, where it has
// full attention's blocks too. It is its writer's alone. Begin it with NewHeld, end
// it with Clear.
type Held struct {
	table *Table
	nodes *radix.Nodes
	full  *radix.Holding
	slot  int
	shape *Shape

	parts  map[uint32]*part    // by node
	behind map[uint32][]uint32 // by node: those with parts that follow blocks of it

	dirty  []*part
	counts []int // scratch, by spec
}

// part is what the holder has along one node.
type part struct {
	node   uint32
	parent radix.Place
	depth  int
	specs  []bitmap // by spec: the blocks that end where the node's do
	ends   bitmap   // as in the table
	sure   bitmap   // of ends, those that are sure

	from, to int // where bits changed: a dirty one's
}

// NewHeld begins empty.
func NewHeld(t *Table, n *radix.Nodes, full *radix.Holding, slot int, s *Shape) *Held {
	return &Held{table: t, nodes: n, full: full, slot: slot, shape: s,
		parts: map[uint32]*part{}, behind: map[uint32][]uint32{}, counts: make([]int, len(s.Specs))}
}

// Put records which specs, as bits, hold the block that ends with full attention's at
// a place, which the holder has. Settle makes it count.
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

// Settle works out the ends that what was Put has changed.
func (h *Held) Settle() {
	for _, p := range h.dirty {
		from, to := p.from, p.to
		p.from, p.to = 0, 0
		h.work(p, from, p.depth+to)
	}
	h.dirty = h.dirty[:0]
}

// work works out a part's ends from an offset on, and those of the parts behind it,
// as far as they depend on blocks before a depth.
func (h *Held) work(p *part, from, changed int) {
	for i := range h.shape.Specs {
		h.counts[i] = h.held(p, from, i)
	}
	open := uint32(1)<<len(h.shape.Specs) - 1 // specs that blocks before changed still matter to
	off, last := from, h.full.Held(p.node)
	start, is := from, none // the range that differs from the table, and what it becomes
	for ; off < last && open != 0; off++ {
		now := h.step(p, off)
		if now != is || now == p.at(off) {
			h.change(p, start, off, is)
			start, is = off, now
		}
		if now == p.at(off) {
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

// depend returns which specs, as bits, may need a block that lies so many before the
// block that was counted last and ends at end.
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

// step counts the block at an offset, and returns what the end behind it is.
func (h *Held) step(p *part, off int) end {
	at := p.depth + off + 1
	if h.shape.Ahead {
		return h.stepAhead(p, off, at)
	}
	ok := at%h.shape.Step == 0
	for i := range h.shape.Specs {
		if s := &h.shape.Specs[i]; at%s.Stride == 0 {
			h.count(p, off, i)
			ok = ok && h.counts[i] >= s.need(at)
		}
	}
	if !ok {
		return none
	}
	return sure
}

// stepAhead is step where specs drop a block: they have one block more than they
// need if they have what they need both a block before and here.
func (h *Held) stepAhead(p *part, off, at int) end {
	allowed, all, any := true, true, false // allowed: by all, a block before; all, any: of those that drop, here
	for i := range h.shape.Specs {
		s := &h.shape.Specs[i]
		allowed = allowed && h.counts[i] >= s.need(at-1)
		h.count(p, off, i)
		if s.Drops && !s.State {
			ok := h.counts[i] >= s.need(at)
			all, any = all && ok, any || ok
		}
	}
	switch {
	case allowed && all:
		return sure
	case any && (allowed || h.shape.stateDrops()):
		return open
	}
	return none
}

func (h *Held) count(p *part, off, spec int) {
	if p.specs[spec].has(off) {
		h.counts[spec]++
	} else {
		h.counts[spec] = 0
	}
}

// held is how many blocks of a spec are held without a gap before an offset, as far
// as that matters.
func (h *Held) held(p *part, off, spec int) (n int) {
	s := &h.shape.Specs[spec]
	at := (p.depth+off)/s.Stride*s.Stride - 1
	if s.All {
		if h.allBefore(p, at) {
			return at + 1
		}
		return 0
	}
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

// allBefore reports whether the end behind a depth is one, so that a shape's only
// spec holds all blocks up to there.
func (h *Held) allBefore(p *part, depth int) bool {
	if depth < 0 {
		return true
	}
	for p != nil && depth < p.depth {
		p = h.parts[p.parent.Node()]
	}
	return p != nil && p.ends.has(depth-p.depth)
}

func (h *Held) change(p *part, from, to int, is end) {
	if from >= to {
		return
	}
	for off := from; off < to; off++ {
		p.ends.put(off, is != none)
		p.sure.put(off, is == sure)
	}
	h.table.put(p.node, from, to, h.slot, is)
}

// at is what the end behind a block is, as in the table.
func (p *part) at(off int) end {
	switch {
	case !p.ends.has(off):
		return none
	case p.sure.has(off):
		return sure
	}
	return open
}

// Cut drops a node's bits from an offset on: full attention's blocks
// there are about to go, and all behind them.
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
		h.table.put(p.node, off, to, h.slot, none)
		off = to
	}
	p.ends.cut(from)
	p.sure.cut(from)
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

// partBytes is about the size of a part without its bits: its struct and its
// entries in maps.
const partBytes = 224

// Bytes is the memory of it.
func (h *Held) Bytes() (n int) {
	for _, p := range h.parts {
		n += partBytes + 8*cap(p.ends) + 8*cap(p.sure)
		for i := range p.specs {
			n += 24 + 8*cap(p.specs[i])
		}
	}
	return n
}
