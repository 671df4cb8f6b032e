package radix

import (
	"slices"
	"sync/atomic"
	"unsafe"

	"warmroute/index/internal/holderset"
)

// Run is a stretch of a node's blocks that one set holds, up to an offset. Along a
// node sets only shrink. In a node's runs each is a word: the end in the low 16
// bits, the set above them, and the mark of the block behind it; the last one ends where
// the node does, and has no mark.
type Run struct {
	End  int
	Set  holderset.ID
	mark uint32
}

const runEnd = 0xffff // of the last run

const markShift = 64 - markBits

func packRun(r Run) uint64 { return uint64(r.End) | uint64(r.Set)<<16 | uint64(r.mark)<<markShift }

// packRuns returns the first word of a node's new runs.
func packRuns(runs []Run) *uint64 {
	words := make([]uint64, len(runs))
	for i, r := range runs {
		words[i] = packRun(r)
	}
	words[len(words)-1] |= runEnd
	return &words[0]
}

func unpackRun(w uint64) Run {
	return Run{int(w & runEnd), holderset.ID(w >> 16 & holderset.MaxID), uint32(w >> markShift)}
}

// runAt reads one of a node's runs. The one before it was not the last.
func runAt(runs *uint64, i int) Run {
	return unpackRun(atomic.LoadUint64((*uint64)(unsafe.Add(unsafe.Pointer(runs), i*8))))
}

// runWords returns the words of a node's runs, if it has several. Only the writer
// calls it and all functions below.
func (nd *node) runWords() []uint64 {
	p := nd.runs.Load()
	if p == nil || nd.state.Load()&stateRuns == 0 {
		return nil
	}
	n := 1
	for runAt(p, n-1).End != runEnd {
		n++
	}
	return unsafe.Slice(p, n)
}

// appendRuns appends a node's runs.
func (nd *node) appendRuns(dst []Run) []Run {
	s := nd.state.Load()
	n := lenOf(s)
	if s&stateRuns == 0 {
		return append(dst, Run{End: n, Set: setOf(s)})
	}
	for _, w := range nd.runWords() {
		dst = append(dst, unpackRun(w))
	}
	dst[len(dst)-1].End = n
	return dst
}

// held returns how many blocks of a node a slot holds.
func (n *Nodes) held(nd *node, slot int) (blocks int) {
	s := nd.state.Load()
	if s&stateRuns == 0 {
		if n.sets.Has(setOf(s), slot) {
			blocks = lenOf(s)
		}
		return blocks
	}
	words := nd.runWords()
	for i, w := range words {
		r := unpackRun(w)
		if !n.sets.Has(r.Set, slot) {
			break
		}
		if blocks = r.End; i == len(words)-1 {
			blocks = lenOf(s)
		}
	}
	return blocks
}

// toggle adds or removes a holder's slot on [from, to) of a node; the holder must hold
// all of the range or none. It removes blocks at the end without holders, except
// blocks that other nodes follow. false: there are too many different sets, and
// nothing has changed.
func (n *Nodes) toggle(id uint32, nd *node, from, to, slot int) bool {
	s := nd.state.Load()
	len := lenOf(s)
	if s&stateRuns == 0 && from == 0 && to == len {
		return n.toggleAll(id, nd, s, slot)
	}
	old := nd.appendRuns(n.old[:0])
	out, ok := n.toggled(n.out[:0], old, from, to, slot)
	n.old, n.out = old, out
	if !ok {
		return false
	}
	n.publish(id, nd, len, old, out)
	for _, r := range old {
		n.sets.Release(r.Set)
	}
	return true
}

// toggleAll is toggle for all blocks of a node that have one set.
func (n *Nodes) toggleAll(id uint32, nd *node, s uint64, slot int) bool {
	was := setOf(s)
	to, ok := n.sets.Toggle(was, slot)
	if !ok {
		return false
	}
	if to == 0 {
		n.clear(id, nd)
	} else {
		nd.state.Store(s&^stateSet | uint64(to)<<stateSetShift)
	}
	n.sets.Release(was)
	return true
}

// toggled appends the runs that toggle leaves, the last ones perhaps without
// holders, with a reference for each.
func (n *Nodes) toggled(dst, old []Run, from, to, slot int) (_ []Run, ok bool) {
	start := 0
	add := func(end int, set holderset.ID) {
		if k := len(dst); k > 0 && dst[k-1].Set == set {
			n.sets.Release(set)
			dst[k-1].End = end
		} else {
			dst = append(dst, Run{End: end, Set: set})
		}
		start = end
	}
	same := func(end int, set holderset.ID) {
		if end > start {
			n.sets.Retain(set)
			add(end, set)
		}
	}
	for _, l := range old {
		same(min(l.End, from), l.Set)
		if end := min(l.End, to); end > start && start >= from {
			set, ok := n.sets.Toggle(l.Set, slot)
			if !ok {
				for _, l := range dst {
					n.sets.Release(l.Set)
				}
				return dst[:0], false
			}
			add(end, set)
		}
		same(l.End, l.Set)
	}
	return dst, true
}

// publish gives a node new runs, after the old ones and so many blocks.
func (n *Nodes) publish(id uint32, nd *node, blocks int, old, runs []Run) {
	last := len(runs) - 1
	left := runs[last].End
	if runs[last].Set == 0 {
		if left = 0; last > 0 {
			left = runs[last-1].End
		}
		if floor := n.floor(nd, left); floor > left {
			left = floor
			runs[last].End = left
		} else {
			runs = runs[:last]
		}
	}
	if len(runs) == 0 {
		n.clear(id, nd)
		return
	}
	n.trees[nd.tree].putMarks(nd, runs)
	s := nd.state.Load() &^ (stateRuns | stateSet)
	if left < blocks {
		n.trees[nd.tree].removed(id, nd, left, blocks)
		s = shortened(s, left)
	}
	if len(runs) == 1 {
		nd.state.Store(s | uint64(runs[0].Set)<<stateSetShift)
		nd.runs.Store(nil)
		return
	}
	if moveEnd(nd.runWords(), old, runs, !nd.truncated) {
		if left < blocks {
			nd.truncated = true
			nd.state.Store(s | stateRuns)
		}
		return
	}
	nd.truncated = false
	words := packRuns(runs)
	if left < blocks { // readers of the new runs must see the new end
		nd.state.Store(s | stateRuns)
	}
	nd.runs.Store(words)
	nd.state.Store(s | stateRuns)
}

// putMarks gives a node's new runs their marks.
func (t *Tree) putMarks(nd *node, runs []Run) {
	last := len(runs) - 1
	for i := range runs[:last] {
		runs[i].mark = t.markAt(nd, runs[i].End)
	}
	runs[last].mark = 0
}

// moveEnd changes a node's runs in place if they differ from the old ones in one end
// only. The end may rise only with up. No second end differs: one slot comes or goes, so
// the sets between two ends that differ would differ too.
func moveEnd(words []uint64, old, runs []Run, up bool) bool {
	if !slices.EqualFunc(old, runs, func(a, b Run) bool { return a.Set == b.Set }) {
		return false
	}
	for i, r := range runs[:len(runs)-1] { // the last one ends with the node
		if r.End == old[i].End {
			continue
		}
		if r.End > old[i].End && !up {
			return false
		}
		atomic.StoreUint64(&words[i], packRun(r))
	}
	return true
}

// clear takes all blocks from a node, except blocks that other nodes follow. The
// caller releases their sets. A node without blocks ends.
func (n *Nodes) clear(id uint32, nd *node) {
	s := nd.state.Load()
	t, left := n.trees[nd.tree], n.floor(nd, 0)
	t.removed(id, nd, left, lenOf(s))
	nd.state.Store(shortened(versionOf(s), left))
	nd.runs.Store(nil)
	if left > 0 {
		return
	}
	t.heads.Delete(headOf(nd.parent, nd.key(0)), uint64(At(id, 0)))
	n.unlink(nd)
	n.retired.Put(retired{id: id})
}
