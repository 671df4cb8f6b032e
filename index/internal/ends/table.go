package ends

import (
	"math/bits"
	"sync/atomic"

	"warmroute/index/internal/holderset"
	"warmroute/index/internal/radix"
)

// Span is the blocks From … To-1 of a node, and the holders whose hits may end with
// any of them.
type Span struct {
	From, To uint16
	Set      holderset.ID
}

// nodeSpans are one node's spans. They are immutable.
type nodeSpans struct{ spans []Span }

const nodesPerPage = 64

type page [nodesPerPage]atomic.Pointer[nodeSpans]

// Table has the ends along a shard's nodes. Init it first.
type Table struct {
	sets  *holderset.Sets
	pages atomic.Pointer[[]*page] // by node, nil where no node of a page has ends

	out []Span // scratch
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
			return n.spans
		}
	}
	return nil
}

// Nodes returns a bound of the numbers of the nodes with ends.
func (t *Table) Nodes() uint32 { return uint32(len(*t.pages.Load()) * nodesPerPage) }

// Narrow replaces each holder's depth in a path with its hit: its last end, at most
// limit, less lose. depth is by slot. decide has the slots of the holders, as bits;
// Narrow leaves in it the slots that hit nothing.
func (t *Table) Narrow(path []radix.Stretch, limit, lose int32, decide []uint64, depth []int32) {
	for i := len(path) - 1; i >= 0; i-- {
		at := &path[i]
		spans := t.Of(at.Node())
		for k := len(spans) - 1; k >= 0; k-- {
			s := &spans[k]
			from, to := at.Depth+int32(s.From), min(at.Depth+min(int32(s.To), at.Len), limit)
			if from < to && !t.narrow(s.Set, bounds{from, to, lose}, decide, depth) {
				return
			}
		}
	}
}

// bounds are a span along a path, and the blocks between an end and its hit.
type bounds struct{ from, to, lose int32 }

// narrow decides the slots of a set that have a block within the bounds, and reports
// whether decide has others left.
func (t *Table) narrow(set holderset.ID, b bounds, decide []uint64, depth []int32) (left bool) {
	for i, word := range decide {
		if word == 0 {
			continue
		}
		for w := word & t.sets.Word(set, i); w != 0; w &= w - 1 {
			bit := bits.TrailingZeros64(w)
			if has := &depth[i<<6+bit]; *has > b.from {
				*has = min(*has, b.to) - b.lose
				word &^= 1 << bit
			}
		}
		decide[i] = word
		left = left || word != 0
	}
	return left
}

// put adds a slot to the ends of the blocks from … to - 1 of a node, or removes it.
// When no more sets can be made, these ends lose all their holders, and lookups credit
// less than the holders hit.
func (t *Table) put(node uint32, from, to, slot int, on bool) {
	old := t.Of(node)
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

// keep appends a span that does not change.
func (t *Table) keep(from, to int, set holderset.ID) {
	if from < to {
		t.sets.Retain(set, 1)
		t.add(Span{uint16(from), uint16(to), set})
	}
}

// keepWith appends a span with the slot in its set, or without the slot.
func (t *Table) keepWith(s Span, slot int, on bool) {
	switch {
	case s.From >= s.To:
		return
	case t.sets.Has(s.Set, slot) == on:
		t.sets.Retain(s.Set, 1)
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
		t.sets.Release(s.Set, 1)
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
	if len(t.out) == 0 {
		pages[i][node%nodesPerPage].Store(nil)
	} else {
		pages[i][node%nodesPerPage].Store(&nodeSpans{append([]Span(nil), t.out...)})
	}
	for _, s := range old {
		t.sets.Release(s.Set, 1)
	}
}
