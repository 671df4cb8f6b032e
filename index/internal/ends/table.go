package ends

import (
	"math/bits"
	"sync/atomic"

	"warmroute/index/internal/holderset"
	"warmroute/index/internal/radix"
)

// Run is the ends of the blocks From … To-1 of a node, and who may hit up to them.
type Run struct {
	From, To uint16
	Set      holderset.ID
}

// nodeRuns are a node's, immutable.
type nodeRuns struct{ runs []Run }

const nodesPerPage = 64

type page [nodesPerPage]atomic.Pointer[nodeRuns]

// Table is the ends along a shard's nodes. Init it first.
type Table struct {
	sets  *holderset.Sets
	pages atomic.Pointer[[]*page] // by node, nil where no node of a page has ends
	bytes int

	out []Run // scratch
}

// Init makes it empty, of sets that the shard's writer interns.
func (t *Table) Init(sets *holderset.Sets) {
	t.sets = sets
	t.pages.Store(&[]*page{})
}

// Of is the ends of a node.
func (t *Table) Of(node uint32) []Run {
	pages := *t.pages.Load()
	if i := int(node / nodesPerPage); i < len(pages) && pages[i] != nil {
		if n := pages[i][node%nodesPerPage].Load(); n != nil {
			return n.runs
		}
	}
	return nil
}

// Nodes bounds the numbers of nodes that have ends.
func (t *Table) Nodes() uint32 { return uint32(len(*t.pages.Load()) * nodesPerPage) }

// Bytes is the memory of the table.
func (t *Table) Bytes() int { return t.bytes + 8*len(*t.pages.Load()) }

// Narrow turns how many blocks of a path holders have without a gap into how many
// of them they hit, at most limit. decide has the slots in question, and
// keeps those that hit nothing. by is by slot.
func (t *Table) Narrow(path []radix.Stretch, limit int32, decide []uint64, by []int32) {
	for i := len(path) - 1; i >= 0; i-- {
		at := &path[i]
		runs := t.Of(at.Node())
		for k := len(runs) - 1; k >= 0; k-- {
			r := &runs[k]
			from, to := at.Depth+int32(r.From), min(at.Depth+min(int32(r.To), at.Len), limit)
			if from < to && !t.narrow(r.Set, from, to, decide, by) {
				return
			}
		}
	}
}

// narrow decides the slots of a set that have a block from … to - 1, and says
// whether others are left.
func (t *Table) narrow(set holderset.ID, from, to int32, decide []uint64, by []int32) (left bool) {
	for i, word := range decide {
		if word == 0 {
			continue
		}
		for w := word & t.sets.Word(set, i); w != 0; w &= w - 1 {
			bit := bits.TrailingZeros64(w)
			if has := &by[i<<6+bit]; *has > from {
				*has = min(*has, to)
				word &^= 1 << bit
			}
		}
		decide[i] = word
		left = left || word != 0
	}
	return left
}

// toggle adds or removes a slot at the ends of the blocks from … to - 1 of a node.
// Where there are too many different sets, the ends lose all holders: less is
// credited than is hit then.
func (t *Table) toggle(node uint32, from, to, slot int, on bool) {
	old := t.Of(node)
	t.out = t.out[:0]
	for _, r := range old {
		t.keep(int(r.From), min(int(r.To), from), r.Set)
	}
	at := from
	for _, r := range old {
		if a, b := max(int(r.From), from), min(int(r.To), to); a < b {
			t.change(at, a, 0, slot, on)
			t.change(a, b, r.Set, slot, on)
			at = b
		}
	}
	t.change(at, to, 0, slot, on)
	for _, r := range old {
		t.keep(max(int(r.From), to), int(r.To), r.Set)
	}
	t.store(node, old)
}

// keep appends a run that stays.
func (t *Table) keep(from, to int, set holderset.ID) {
	if from < to {
		t.sets.Retain(set, 1)
		t.add(from, to, set)
	}
}

// change appends a run with the slot in its set, or without.
func (t *Table) change(from, to int, set holderset.ID, slot int, on bool) {
	switch {
	case from >= to:
	case t.sets.Has(set, slot) == on:
		t.keep(from, to, set)
	default:
		if next, ok := t.sets.Toggle(set, slot); ok {
			t.add(from, to, next)
		}
	}
}

// add appends a run with a reference to its set.
func (t *Table) add(from, to int, set holderset.ID) {
	if set == 0 {
		return
	}
	if k := len(t.out) - 1; k >= 0 && t.out[k].Set == set && int(t.out[k].To) == from {
		t.out[k].To = uint16(to)
		t.sets.Release(set, 1)
		return
	}
	t.out = append(t.out, Run{uint16(from), uint16(to), set})
}

const (
	pageBytes = 8 * nodesPerPage
	nodeBytes = 24 // of a nodeRuns
	runBytes  = 8
)

// store makes t.out a node's, instead of what it had.
func (t *Table) store(node uint32, old []Run) {
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
		t.bytes += pageBytes
	}
	if len(old) > 0 {
		t.bytes -= nodeBytes + runBytes*len(old)
	}
	if len(t.out) == 0 {
		pages[i][node%nodesPerPage].Store(nil)
	} else {
		t.bytes += nodeBytes + runBytes*len(t.out)
		pages[i][node%nodesPerPage].Store(&nodeRuns{append([]Run(nil), t.out...)})
	}
	for _, r := range old {
		t.sets.Release(r.Set, 1)
	}
}
