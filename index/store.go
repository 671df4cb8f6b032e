package index

import (
	"slices"
	"unsafe"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
)

// run is consecutive blocks of one holder in one tier.
type run struct {
	sp        *space
	slot      int
	tier      Tier
	full      bool
	tick      uint16
	hasParent bool
	parent    spot     // of the block before the first, when hasParent
	keys      []uint64 // the blocks
	engines   []uint64 // what their holder calls them
}

// spot is where a holder's block is: at pos, when it and all before it are on
// GPU, else beside them, and only its key is known.
type spot struct {
	pos pos
	key uint64
}

// cancel ends speculation about what was just reported.
func (r *run) cancel(id HolderID) {
	if r.tier == TierGPU {
		r.sp.cancel(id, r.keys)
	}
}

// ahead is how many blocks are touched before they are worked on, so that
// their cache misses overlap; about what a core can have in flight.
const ahead = 32

// spotOf finds a block by what its holder calls it, in one space.
func (d *domain) spotOf(sp *space, slot int, hash uint64) (spot, bool) {
	info := &d.info[slot]
	if p := info.find(&d.stems, hash); p != 0 {
		st := d.stems.at(p.stem())
		return spot{p, st.key(p.off())}, int(st.space) == sp.index
	}
	if b, ok := info.stranded[hash]; ok {
		return spot{key: b.key}, b.space == sp.index
	}
	if l := info.lower[sp.index]; l != nil {
		if key := l.Get(hash); key != 0 {
			return spot{key: key}, true
		}
	}
	return spot{}, false
}

func (d *domain) store(r *run, res *Result) {
	w := storing{d: d, run: r, res: res, info: &d.info[r.slot], keys: r.keys, hashes: r.engines, at: r.parent.pos}
	w.room = min(d.x.o.MaxScopeBlocks-r.sp.blocks(), d.x.o.MaxBlocks-int(d.x.blocks.Load()))
	switch {
	case r.tier != TierGPU:
		w.beside()
	case r.hasParent && r.parent.pos == 0:
		w.behindHole()
	default:
		w.visible()
	}
	if n := len(w.keys); n > 0 {
		res.Dropped += n
		d.partial.Put(r.slot, true)
	}
	if d.orphans.blocks > 0 {
		for _, hash := range r.engines[:len(r.engines)-len(w.keys)] {
			d.orphans.wake(r.slot, hash, &d.joined)
		}
	}
}

// storing is the state while a run is stored.
type storing struct {
	d    *domain
	run  *run
	res  *Result
	info *slotInfo

	keys, hashes []uint64 // what is left to store
	at           pos      // of the block before
	room         int      // blocks the caps leave
	quiet        bool     // the blocks are the holder's already: nothing is counted
}

// done takes n blocks off the run, which are at p and behind it.
func (w *storing) done(p pos, n int) {
	w.keys, w.hashes = w.keys[n:], w.hashes[n:]
	w.at = p + pos(n-1)
}

// visible stores blocks behind one that the holder has with all before it.
func (w *storing) visible() {
	for len(w.keys) > 0 {
		if len(w.info.stranded) == 0 {
			if !w.some(len(w.keys)) {
				return
			}
			continue
		}
		key := w.keys[0]
		if _, taken := w.info.stranded[w.hashes[0]]; taken || !w.some(1) {
			return
		}
		w.promote(w.at, key) // what waits for this block comes before the next
	}
}

// some stores at least one of the next n blocks. false: it could not.
func (w *storing) some(n int) bool {
	d, key := w.d, w.keys[0]
	if w.at != 0 {
		id, off := w.at.stem(), w.at.off()+1
		st := d.stems.at(id)
		if end := st.blocks(); off < end && st.key(off) == key {
			return w.existing(id, st, off, n)
		} else if head := w.head(key); head != 0 {
			st := d.stems.at(head)
			return st.parent == w.at && w.existing(head, st, 0, n)
		} else if off == end && end < maxStem {
			return w.extend(id, st, n)
		}
		return w.begin(n)
	}
	if head := w.head(key); head != 0 {
		st := d.stems.at(head)
		return st.parent == 0 && w.existing(head, st, 0, n)
	}
	return w.begin(n)
}

// head is the stem that a key begins, 0 = none.
func (w *storing) head(key uint64) uint32 {
	return w.d.stems.find(&w.run.sp.heads, key).stem()
}

// existing stores blocks that others have, or the holder itself.
func (w *storing) existing(id uint32, st *stem, off, n int) bool {
	d := w.d
	have := st.all()[off:]
	n = min(n, len(have))
	for same := 0; same < n; same++ {
		if have[same] != w.keys[same] {
			n = same
		}
	}
	held := d.cutoff(st, w.run.slot)
	if held < off {
		return false
	}
	if again := min(n, held-off); again > 0 {
		return w.again(posAt(id, off), again)
	}
	p := posAt(id, off)
	if n = w.name(st, p, n); n == 0 {
		return false
	}
	if !d.flip(id, st, off, off+n, w.run.slot) {
		w.unname(n)
		return false
	}
	st.tick = w.run.tick
	w.stored(st, p, n)
	return true
}

// stored counts n blocks that are the holder's now.
func (w *storing) stored(st *stem, p pos, n int) {
	if p.off() == 0 && st.parent != 0 {
		w.info.kids.Add(uint64(st.parent), 1)
	}
	if !w.quiet {
		w.info.blocks[TierGPU] += n
		w.res.Stored += n
	}
	w.done(p, n)
}

// again counts blocks that the holder has at p already.
func (w *storing) again(p pos, n int) bool {
	for i := range n {
		if w.info.find(&w.d.stems, w.hashes[i]) != p+pos(i) {
			w.done(p, i) // two names of one block: believe the first
			return false
		}
		w.repeat(w.keys[i])
	}
	w.done(p, n)
	return true
}

// name notes what the holder calls up to n blocks from p on, and returns how
// many: a name that stands for another block ends it.
func (w *storing) name(st *stem, p pos, n int) int {
	l, hashes, names := &w.info.lane, w.hashes[:n], st.names(p.off() + n)[p.off():]
	l.Reserve(n)
	sink := uint64(0)
	for i, hash := range hashes {
		if i%ahead == 0 {
			for _, h := range hashes[i:min(i+ahead, n)] {
				sink += l.Touch(h)
			}
		}
		if names[i] != hash || w.info.odd.Len() > 0 {
			if !w.nameOdd(names[i], hash, p+pos(i)) {
				return i
			}
		} else if w.info.put(&w.d.stems, hash, p+pos(i)) != 0 {
			return i
		}
	}
	w.d.sink = sink
	return n
}

// nameOdd is name for a holder that calls some blocks otherwise than their stems do.
func (w *storing) nameOdd(stems, hash uint64, p pos) bool {
	if w.info.find(&w.d.stems, hash) != 0 {
		return false
	}
	if stems == hash {
		return w.info.put(&w.d.stems, hash, p) == 0
	}
	return w.info.odd.Put(hash, uint64(p)) == 0
}

func (w *storing) unname(n int) {
	for _, hash := range w.hashes[:n] {
		w.info.take(&w.d.stems, hash)
	}
}

// extend stores blocks nobody has behind the end of a stem.
func (w *storing) extend(id uint32, st *stem, n int) bool {
	d, end := w.d, st.blocks()
	n = min(n, maxStem-end)
	if n = w.makeRoom(n, id); n == 0 {
		return false
	}
	p := posAt(id, end)
	d.reserve(st, w.keys[:n], w.hashes)
	if n = w.name(st, p, n); n == 0 {
		return false
	}
	d.grow(st, n, w.run.slot)
	w.mark(id, st, end, end+n)
	st.tick = w.run.tick
	w.stored(st, p, n)
	return true
}

// reserve writes keys and names behind the end of a stem, where no reader looks.
func (d *domain) reserve(st *stem, keys, names []uint64) {
	n := st.blocks()
	end := n + len(keys)
	if st.room == 0 {
		st.plain = slices.Equal(keys, names[:len(keys)])
	}
	if n < int(st.seen) || end > int(st.room) {
		wide := st.wide()
		fresh, words := d.stems.arrays.take(wide * max(end, min(maxStem, n+n/4), int(st.room)))
		room := words / wide
		both := unsafe.Slice(fresh, words)
		if n > 0 {
			copy(both, st.all())
			copy(both[(wide-1)*room:], st.names(n))
		}
		old, size := st.keys.Swap(fresh), wide*int(st.room)
		d.stems.outgrown(old, size) // only now: no lookup that begins later can know it
		st.room, st.seen = uint16(room), uint16(n)
	}
	copy(st.array(end)[n:], keys)
	if !st.plain {
		copy(st.names(end)[n:], names)
	}
}

// grow makes n more blocks of what was reserved a stem's, for one slot.
func (d *domain) grow(st *stem, more, slot int) {
	s := st.state.Load()
	n := stateBlocks(s)
	end := n + more
	st.seen = uint16(end)
	last := level{n, stateSet(s)}
	if s&stateLevels != 0 {
		words := st.words()
		last = unpackLevel(words[len(words)-1])
	}
	if int(last.set) == slot+1 {
		st.state.Store(s&^0xffff | uint64(end))
		return
	}
	levels := st.appendLevels(d.old[:0])
	words := make([]uint64, 0, len(levels)+1)
	for _, l := range levels {
		words = append(words, packLevel(l))
	}
	words = append(words, packLevel(level{levelEnd, holderset.ID(slot + 1)}))
	d.old = levels
	st.stale = false
	st.levels.Store(&words[0])
	st.state.Store(s&^(0xffff|holderset.MaxID<<stateSetShift) | stateLevels | uint64(end))
}

// begin makes a stem of blocks nobody has.
func (w *storing) begin(n int) bool {
	d, sp := w.d, w.run.sp
	spare := uint32(0)
	if w.at != 0 {
		spare = w.at.stem()
	}
	if n = w.makeRoom(min(n, maxStem), spare); n == 0 {
		return false
	}
	id, st, ok := d.stems.take()
	if !ok {
		return false
	}
	p := posAt(id, 0)
	d.reserve(st, w.keys[:n], w.hashes)
	if n = w.name(st, p, n); n == 0 {
		d.stems.rest(id)
		return false
	}
	st.space, st.tick, st.seen = uint16(sp.index), w.run.tick, uint16(n)
	d.link(id, st, w.at)
	st.state.Store(st.state.Load()>>stateVersionShift<<stateVersionShift | stateOf(n, holderset.ID(w.run.slot+1)))
	sp.heads.Put(w.keys[0], uint64(p))
	w.mark(id, st, 0, n)
	w.stored(st, p, n)
	return true
}

// mark counts new blocks, and notes the places of some.
func (w *storing) mark(id uint32, st *stem, from, to int) {
	sp := w.run.sp
	sp.held += to - from
	st.marks(sp.d.x.o.markEvery, from, to, func(off int) {
		sp.marks.Put(st.key(off), uint64(posAt(id, off)))
	})
}

// makeRoom returns for how many of n new blocks there is room, and evicts others
// where there is none, but nothing of one stem.
func (w *storing) makeRoom(n int, spare uint32) int {
	if short := n - w.room; short > 0 {
		w.room += w.d.evict(w.run.sp, short, spare)
	}
	n = max(0, min(n, w.room))
	w.room -= n
	return n
}

// beside stores blocks in a tier below the GPU.
func (w *storing) beside() {
	d, sp, tier := w.d, w.run.sp, w.run.tier
	t := sp.flat(&sp.lower[tier])
	if w.info.lower == nil {
		w.info.lower = map[int]*hashtable.Map{}
	}
	names := w.info.lower[sp.index]
	if names == nil {
		names = new(hashtable.Map)
		names.Init(&d.x.pool)
		w.info.lower[sp.index] = names
	}
	for ; len(w.keys) > 0; w.keys, w.hashes = w.keys[1:], w.hashes[1:] {
		key, hash := w.keys[0], w.hashes[0]
		if was := names.Get(hash); was != 0 && was != key {
			return
		}
		s := t.Insert(key)
		if d.rowHas(s, w.run.slot) {
			w.repeat(key)
			continue
		}
		if s.Value().Set() == 0 && w.makeRoom(1, 0) == 0 || !d.toggleIn(t, t.Find(key), w.run.slot) {
			return
		}
		names.Put(hash, key)
		w.info.blocks[tier]++
		w.res.Stored++
	}
}

func (w *storing) repeat(key uint64) {
	if w.quiet {
		return
	}
	w.res.Repeated++
	if !w.run.full {
		w.d.copies[copyKey{int32(w.run.sp.index), int32(w.run.slot), w.run.tier, key}]++
	}
}
