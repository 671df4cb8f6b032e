package index

import (
	"sync/atomic"
	"unsafe"

	"warmroute/index/internal/holderset"
)

// level is a stretch of a stem that one set of holders has. Along a stem sets
// only shrink. In a stem's levels each is a word: where the stretch ends in the
// low 16 bits, the set above them; the last one ends where the stem does.
type level struct {
	end int
	set holderset.ID
}

const levelEnd = 0xffff // of the last level

func packLevel(l level) uint64 { return uint64(l.end) | uint64(l.set)<<16 }
func unpackLevel(w uint64) level {
	return level{int(w & levelEnd), holderset.ID(w >> 16 & holderset.MaxID)}
}
func stateOf(n int, set holderset.ID) uint64 { return uint64(n) | uint64(set)<<stateSetShift }

// levelAt reads one of a stem's levels. The one before it was not the last.
func levelAt(levels *uint64, i int) level {
	return unpackLevel(atomic.LoadUint64((*uint64)(unsafe.Add(unsafe.Pointer(levels), i*8))))
}

// words are a stem's levels where it has several. Writer only.
func (st *stem) words() []uint64 {
	p := st.levels.Load()
	if p == nil || st.state.Load()&stateLevels == 0 {
		return nil
	}
	n := 1
	for levelAt(p, n-1).end != levelEnd {
		n++
	}
	return unsafe.Slice(p, n)
}

// appendLevels appends a stem's levels. Writer only.
func (st *stem) appendLevels(dst []level) []level {
	s := st.state.Load()
	n := stateBlocks(s)
	if s&stateLevels == 0 {
		return append(dst, level{n, stateSet(s)})
	}
	for _, w := range st.words() {
		dst = append(dst, unpackLevel(w))
	}
	dst[len(dst)-1].end = n
	return dst
}

// cutoff is how many blocks of a stem a slot holds. Writer only.
func (d *domain) cutoff(st *stem, slot int) (n int) {
	s := st.state.Load()
	if s&stateLevels == 0 {
		if d.sets.Has(stateSet(s), slot) {
			n = stateBlocks(s)
		}
		return n
	}
	words := st.words()
	for i, w := range words {
		l := unpackLevel(w)
		if !d.sets.Has(l.set, slot) {
			break
		}
		if n = l.end; i == len(words)-1 {
			n = stateBlocks(s)
		}
	}
	return n
}

// flip gives a slot the blocks from … to - 1 of a stem or takes them. All or
// none of them are the slot's. Blocks at the end that nobody holds any more go,
// but those before other stems. false: there are too many different sets, and
// nothing has changed.
func (d *domain) flip(id uint32, st *stem, from, to, slot int) bool {
	s := st.state.Load()
	n := stateBlocks(s)
	if s&stateLevels == 0 && from == 0 && to == n {
		return d.flipWhole(id, st, s, slot)
	}
	if d.shorten(id, st, s, from, to, slot) {
		return true
	}
	old := st.appendLevels(d.old[:0])
	out, ok := d.flipped(d.out[:0], old, from, to, slot)
	d.old, d.out = old, out
	if !ok {
		return false
	}
	d.publish(id, st, n, old, out)
	for _, l := range old {
		d.sets.Release(l.set, 1)
	}
	return true
}

// flipWhole is flip for all blocks of a stem that have one set.
func (d *domain) flipWhole(id uint32, st *stem, s uint64, slot int) bool {
	was := stateSet(s)
	to, ok := d.sets.Toggle(was, slot)
	if !ok {
		return false
	}
	if to == 0 {
		d.cut(id, st, 0, 0)
	} else {
		st.state.Store(s&^(holderset.MaxID<<stateSetShift) | uint64(to)<<stateSetShift)
	}
	d.sets.Release(was, 1)
	return true
}

// shorten is flip for the usual removal: a slot is the last one at the end of a
// stem and loses some of what it has alone.
func (d *domain) shorten(id uint32, st *stem, s uint64, from, to, slot int) bool {
	if to != stateBlocks(s) || from == 0 {
		return false
	}
	start, set := 0, stateSet(s)
	if s&stateLevels != 0 {
		words := st.words()
		set = unpackLevel(words[len(words)-1]).set
		start = unpackLevel(words[len(words)-2]).end
	}
	if int(set) != slot+1 || from <= start || from < d.floor(st, from) {
		return false
	}
	d.truncate(id, st, s, from)
	return true
}

// truncate takes blocks off the end of a stem, all of one level.
func (d *domain) truncate(id uint32, st *stem, s uint64, n int) {
	d.lose(id, st, stateBlocks(s), n)
	st.stale = true
	st.state.Store(s&^0xffff + 1<<stateVersionShift | uint64(n))
}

// lose counts the blocks behind the first n, of was, which are about to go.
func (d *domain) lose(id uint32, st *stem, was, n int) {
	sp := d.spaces[st.space]
	sp.held -= was - n
	st.marks(sp.d.x.o.markEvery, n, was, func(off int) {
		sp.marks.Delete(st.key(off), uint64(posAt(id, off)))
	})
}

// flipped appends the levels that flip leaves, the last ones perhaps of nobody,
// with a reference for each.
func (d *domain) flipped(dst, old []level, from, to, slot int) (_ []level, ok bool) {
	start := 0
	add := func(end int, set holderset.ID) {
		if end <= start {
			return
		}
		if k := len(dst); k > 0 && dst[k-1].set == set {
			d.sets.Release(set, 1)
			dst[k-1].end = end
		} else {
			dst = append(dst, level{end, set})
		}
		start = end
	}
	same := func(end int, set holderset.ID) {
		if end > start {
			d.sets.Retain(set, 1)
			add(end, set)
		}
	}
	for _, l := range old {
		same(min(l.end, from), l.set)
		if end := min(l.end, to); end > start && start >= from {
			set, ok := d.sets.Toggle(l.set, slot)
			if !ok {
				for _, l := range dst {
					d.sets.Release(l.set, 1)
				}
				return dst[:0], false
			}
			add(end, set)
		}
		same(l.end, l.set)
	}
	return dst, true
}

// publish makes levels a stem's, which had n blocks.
func (d *domain) publish(id uint32, st *stem, n int, old, levels []level) {
	last := len(levels) - 1
	left := levels[last].end
	if levels[last].set == 0 {
		if left = 0; last > 0 {
			left = levels[last-1].end
		}
		if floor := d.floor(st, left); floor > left {
			left = floor
			levels[last].end = left
		} else {
			levels = levels[:last]
		}
	}
	if len(levels) == 0 {
		d.cut(id, st, 0, 0)
		return
	}
	s := st.state.Load() &^ (stateLevels | holderset.MaxID<<stateSetShift)
	if left < n {
		d.lose(id, st, n, left)
		s = s&^0xffff + 1<<stateVersionShift | uint64(left)
	}
	if len(levels) == 1 {
		st.state.Store(s | uint64(levels[0].set)<<stateSetShift)
		st.levels.Store(nil)
		return
	}
	if st.state.Load()&stateLevels != 0 && moveEnd(st.words(), old, levels, !st.stale) {
		if left < n {
			st.stale = true
			st.state.Store(s | stateLevels)
		}
		return
	}
	st.stale = false
	words := make([]uint64, len(levels))
	for i, l := range levels {
		words[i] = packLevel(l)
	}
	words[len(words)-1] |= levelEnd
	if left < n { // readers of the new levels must see the new end
		st.state.Store(s | stateLevels)
		st.levels.Store(&words[0])
		return
	}
	st.levels.Store(&words[0])
	st.state.Store(s | stateLevels)
}

// moveEnd changes a stem's levels in place, when they differ from what they were
// in the end of one, which may rise only where up.
func moveEnd(words []uint64, old, levels []level, up bool) bool {
	if len(old) != len(levels) {
		return false
	}
	at := -1
	for i := range levels {
		if levels[i].set != old[i].set {
			return false
		}
		if i < len(levels)-1 && levels[i].end != old[i].end {
			if at >= 0 || !up && levels[i].end > old[i].end {
				return false
			}
			at = i
		}
	}
	if at >= 0 {
		atomic.StoreUint64(&words[at], packLevel(levels[at]))
	}
	return true
}

// floor is how many blocks of a stem must stay, at least n: other stems follow
// the last of them.
func (d *domain) floor(st *stem, n int) int {
	if int(st.deep) < n {
		return n
	}
	deep := -1
	for id := st.child; id != 0; {
		c := d.stems.at(id)
		deep = max(deep, c.parent.off())
		id = c.next
	}
	st.deep = int16(deep)
	return max(n, deep+1)
}

// cut shortens a stem to n blocks, whose holders all have set: what was there is
// the caller's to drop. A stem without blocks ends.
func (d *domain) cut(id uint32, st *stem, n int, set holderset.ID) {
	s := st.state.Load()
	n = d.floor(st, n)
	d.lose(id, st, stateBlocks(s), n)
	first := st.key(0)
	st.state.Store(s>>stateVersionShift<<stateVersionShift + 1<<stateVersionShift | stateOf(n, set))
	st.levels.Store(nil)
	if n > 0 {
		return
	}
	d.spaces[st.space].heads.Delete(first, uint64(posAt(id, 0)))
	d.unlink(st)
	d.stems.rest(id)
}

// link notes that a stem follows a block.
func (d *domain) link(id uint32, st *stem, parent pos) {
	st.parent, st.depth, st.prev, st.next, st.child, st.deep = parent, 0, 0, 0, 0, -1
	if parent == 0 {
		return
	}
	p := d.stems.at(parent.stem())
	st.depth = p.depth + uint32(parent.off()) + 1
	if st.next = p.child; st.next != 0 {
		d.stems.at(st.next).prev = id
	}
	p.child = id
	p.deep = max(p.deep, int16(parent.off()))
}

// unlink undoes it. The parent's blocks that were kept for it go.
func (d *domain) unlink(st *stem) {
	if st.parent == 0 {
		return
	}
	pid := st.parent.stem()
	p := d.stems.at(pid)
	if st.next != 0 {
		d.stems.at(st.next).prev = st.prev
	}
	if st.prev != 0 {
		d.stems.at(st.prev).next = st.next
	} else {
		p.child = st.next
	}
	if d.bare = p.appendLevels(d.bare[:0]); d.bare[len(d.bare)-1].set == 0 {
		levels := d.bare
		d.publish(pid, p, p.blocks(), nil, levels)
	}
}
