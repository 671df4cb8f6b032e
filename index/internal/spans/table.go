package spans

import (
	"slices"
	"sync/atomic"

	"warmroute/index/internal/holderset"
	"warmroute/index/internal/radix"
)

// Span is the blocks From … To-1 of a node, and the holders that have all of them.
type Span struct {
	From, To uint16
	Set      holderset.ID
}

const nodesPerPage = 64

// page has the spans of some nodes, nil where there are none. A node's are immutable.
type page [nodesPerPage]atomic.Pointer[[]Span]

// Table has the spans along a shard's nodes. Init it first.
type Table struct {
	sets  *holderset.Sets
	pages atomic.Pointer[[]*page] // by node, nil where no node of a page has spans

	out   []Span // scratch
	slots []int  // scratch
}

// Init makes the table empty. The shard's writer interns the sets.
func (t *Table) Init(sets *holderset.Sets) {
	t.sets = sets
	t.pages.Store(&[]*page{})
}

// Of returns the spans of a node.
func (t *Table) Of(node uint32) []Span {
	pages := *t.pages.Load()
	if i := int(node / nodesPerPage); i < len(pages) && pages[i] != nil {
		if n := pages[i][node%nodesPerPage].Load(); n != nil {
			return *n
		}
	}
	return nil
}

// Nodes returns a bound of the numbers of the nodes with spans.
func (t *Table) Nodes() uint32 { return uint32(len(*t.pages.Load()) * nodesPerPage) }

// At returns the holders of a node's block, and the first of the blocks up to it that have the
// same holders.
func (t *Table) At(node uint32, off int) (set holderset.ID, from int) {
	spans := t.Of(node)
	lo, hi := 0, len(spans) // the spans before lo begin at off or before it, those from hi on behind it
	for lo < hi {
		if k := int(uint(lo+hi) >> 1); int(spans[k].From) <= off {
			lo = k + 1
		} else {
			hi = k
		}
	}
	if lo == 0 {
		return 0, 0
	}
	if s := &spans[lo-1]; off < int(s.To) {
		return s.Set, int(s.From)
	}
	return 0, int(spans[lo-1].To)
}

// Put adds a slot to the holders of the blocks from … to - 1 of a node, or removes it.
// When no more sets can be made, these blocks lose all their holders, and lookups credit
// less than the holders hit.
func (t *Table) Put(node uint32, from, to, slot int, on bool) {
	old := t.Of(node)
	if t.are(old, from, to, slot, on) {
		return
	}
	t.out = t.out[:0]
	for _, s := range old {
		t.keep(int(s.From), min(int(s.To), from), s.Set)
	}
	at := from
	for _, s := range old {
		if a, b := max(int(s.From), from), min(int(s.To), to); a < b {
			t.keepWith(Span{From: uint16(at), To: uint16(a)}, slot, on)
			t.keepWith(Span{From: uint16(a), To: uint16(b), Set: s.Set}, slot, on)
			at = b
		}
	}
	t.keepWith(Span{From: uint16(at), To: uint16(to)}, slot, on)
	for _, s := range old {
		t.keep(max(int(s.From), to), int(s.To), s.Set)
	}
	t.store(node, old)
}

// are reports whether all of the blocks from … to - 1 have a slot among their holders, or, without
// on, none has.
func (t *Table) are(spans []Span, from, to, slot int, on bool) bool {
	for _, s := range spans {
		if int(s.To) <= from || int(s.From) >= to {
			continue
		}
		if on && int(s.From) > from || t.sets.Has(s.Set, slot) != on {
			return false
		}
		from = int(s.To)
	}
	return !on || from >= to
}

// Sweep removes ended holders, by their slots, from the nodes from … to - 1; to may be 0 behind
// the last node.
func (t *Table) Sweep(ended *holderset.Mask, from, to uint32) {
	if end := t.Nodes(); to == 0 || to > end {
		to = end
	}
	for node := from; node < to; node++ {
		t.slots = t.slots[:0]
		for _, s := range t.Of(node) {
			t.slots = t.sets.AppendIn(t.slots, s.Set, ended)
		}
		for _, slot := range t.slots {
			t.Put(node, 0, radix.MaxNode, slot, false)
		}
	}
}

// keep appends a span that does not change.
func (t *Table) keep(from, to int, set holderset.ID) {
	if from < to {
		t.sets.Retain(set)
		t.add(Span{uint16(from), uint16(to), set})
	}
}

// keepWith appends a span with the slot in its set, or without the slot.
func (t *Table) keepWith(s Span, slot int, on bool) {
	switch {
	case s.From >= s.To:
		return
	case t.sets.Has(s.Set, slot) == on:
		t.sets.Retain(s.Set)
	default:
		var ok bool
		if s.Set, ok = t.sets.Toggle(s.Set, slot); !ok {
			return
		}
	}
	t.add(s)
}

// add appends a span, whose set the caller has retained for it, or extends the last one.
func (t *Table) add(s Span) {
	if s.Set == 0 {
		return
	}
	if k := len(t.out) - 1; k >= 0 && t.out[k].Set == s.Set && t.out[k].To == s.From {
		t.out[k].To = s.To
		t.sets.Release(s.Set)
		return
	}
	t.out = append(t.out, s)
}

// store replaces the spans of a node with t.out.
func (t *Table) store(node uint32, old []Span) {
	pages := *t.pages.Load()
	i := int(node / nodesPerPage)
	if i >= len(pages) || pages[i] == nil {
		if len(t.out) == 0 {
			return
		}
		grown := make([]*page, max(i+1, len(pages)))
		copy(grown, pages)
		grown[i] = new(page)
		t.pages.Store(&grown)
		pages = grown
	}
	var spans *[]Span
	if len(t.out) > 0 {
		spans = new(slices.Clone(t.out))
	}
	pages[i][node%nodesPerPage].Store(spans)
	for _, s := range old {
		t.sets.Release(s.Set)
	}
}
