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
	Sure     holderset.ID // of Set: the holders that hit exactly up to their last end if it is one of these
}

// end is what an end is for one holder.
type end uint8

const (
	none end = iota
	open     // a hit may end here, or before
	sure     // what full attention does not shorten before hits up to here
)

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
// of them they hit: the last end, at most limit, less lose. decide has the slots in question, and
// keeps those that hit nothing. by is by slot. Slots whose last end is not sure are
// added to doubt.
func (t *Table) Narrow(path []radix.Stretch, limit, lose int32, decide, doubt []uint64, by []int32) {
	for i := len(path) - 1; i >= 0; i-- {
		at := &path[i]
		runs := t.Of(at.Node())
		for k := len(runs) - 1; k >= 0; k-- {
			r := &runs[k]
			from, to := at.Depth+int32(r.From), min(at.Depth+min(int32(r.To), at.Len), limit)
			if from < to && !t.narrow(r, from, to, lose, decide, doubt, by) {
				return
			}
		}
	}
}

// narrow decides the slots of a run that have a block from … to - 1, and reports
// whether others are left.
func (t *Table) narrow(r *Run, from, to, lose int32, decide, doubt []uint64, by []int32) (left bool) {
	for i, was := range decide {
		if was == 0 {
			continue
		}
		word := was
		for w := word & t.sets.Word(r.Set, i); w != 0; w &= w - 1 {
			bit := bits.TrailingZeros64(w)
			if has := &by[i<<6+bit]; *has > from {
				*has = min(*has, to) - lose
				word &^= 1 << bit
			}
		}
		if r.Sure != r.Set {
			doubt[i] |= was &^ word &^ t.sets.Word(r.Sure, i)
		}
		decide[i] = word
		left = left || word != 0
	}
	return left
}

// put makes the ends of the blocks from … to - 1 of a node what they are for a slot.
// Where there are too many different sets, the ends lose all holders: less is
// credited than is hit then.
func (t *Table) put(node uint32, from, to, slot int, is end) {
	old := t.Of(node)
	t.out = t.out[:0]
	for _, r := range old {
		t.keep(int(r.From), min(int(r.To), from), r)
	}
	at := from
	for _, r := range old {
		if a, b := max(int(r.From), from), min(int(r.To), to); a < b {
			t.change(at, a, Run{}, slot, is)
			t.change(a, b, r, slot, is)
			at = b
		}
	}
	t.change(at, to, Run{}, slot, is)
	for _, r := range old {
		t.keep(max(int(r.From), to), int(r.To), r)
	}
	t.store(node, old)
}

// keep appends a run that stays.
func (t *Table) keep(from, to int, r Run) {
	if from < to {
		t.sets.Retain(r.Set, 1)
		t.sets.Retain(r.Sure, 1)
		t.add(from, to, r.Set, r.Sure)
	}
}

// change appends a run with the slot in its sets as requested.
func (t *Table) change(from, to int, r Run, slot int, is end) {
	if from >= to {
		return
	}
	set, ok := t.with(r.Set, slot, is != none)
	if !ok {
		return
	}
	certain, ok := t.with(r.Sure, slot, is == sure)
	if !ok {
		t.sets.Release(set, 1)
		return
	}
	t.add(from, to, set, certain)
}

// with returns a reference to a set with the slot in it, or without.
func (t *Table) with(set holderset.ID, slot int, on bool) (holderset.ID, bool) {
	if t.sets.Has(set, slot) == on {
		t.sets.Retain(set, 1)
		return set, true
	}
	return t.sets.Toggle(set, slot)
}

// add appends a run with references to its sets.
func (t *Table) add(from, to int, set, certain holderset.ID) {
	if set == 0 {
		return
	}
	if k := len(t.out) - 1; k >= 0 && t.out[k].Set == set && t.out[k].Sure == certain && int(t.out[k].To) == from {
		t.out[k].To = uint16(to)
		t.sets.Release(set, 1)
		t.sets.Release(certain, 1)
		return
	}
	t.out = append(t.out, Run{uint16(from), uint16(to), set, certain})
}

const (
	pageBytes = 8 * nodesPerPage
	nodeBytes = 24 // of a nodeRuns
	runBytes  = 12
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
		t.sets.Release(r.Sure, 1)
	}
}
