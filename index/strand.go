package index

import "slices"

// strandedBlock is a block on GPU that lacks one before it. It waits by its
// holder's name for it, and by its parent's key for the parent.
type strandedBlock struct {
	space       int
	key, parent uint64
}

type spaceKey struct {
	space int
	key   uint64
}

// strand keeps a block for a slot. The caller has counted it. false: it is kept
// by another name already, or there are too many different sets.
func (d *domain) strand(slot int, hash uint64, b strandedBlock) bool {
	sp, info := d.spaces[b.space], &d.info[slot]
	t := sp.flat(&sp.stranded)
	s := t.Insert(b.key)
	if d.rowHas(s, slot) || !d.toggleIn(t, s, slot) {
		return false
	}
	info.wait(hash, b, true)
	return true
}

// unstrand takes a stranded block away.
func (d *domain) unstrand(slot int, hash uint64, b strandedBlock) {
	info, t := &d.info[slot], d.spaces[b.space].stranded.Load()
	if s := t.Find(b.key); d.rowHas(s, slot) {
		d.toggleIn(t, s, slot)
	}
	info.wait(hash, b, false)
}

// wait notes that a block waits for its parent, or not any more.
func (i *slotInfo) wait(hash uint64, b strandedBlock, on bool) {
	if i.stranded == nil {
		i.stranded, i.behind = map[uint64]strandedBlock{}, map[spaceKey][]uint64{}
	}
	k := spaceKey{b.space, b.parent}
	if on {
		i.stranded[hash] = b
		i.behind[k] = append(i.behind[k], hash)
		return
	}
	delete(i.stranded, hash)
	if i.behind[k] = slices.DeleteFunc(i.behind[k], func(other uint64) bool { return other == hash }); len(i.behind[k]) == 0 {
		delete(i.behind, k)
	}
}

// behindHole stores blocks whose parent the holder lacks, or has beside others.
func (w *storing) behindHole() {
	d, sp, slot := w.d, w.run.sp, w.run.slot
	parent := w.run.parent.key
	for ; len(w.keys) > 0; w.keys, w.hashes = w.keys[1:], w.hashes[1:] {
		key, hash := w.keys[0], w.hashes[0]
		b, known := w.info.stranded[hash]
		if w.info.find(&d.stems, hash) != 0 || known && (b.key != key || b.space != sp.index) {
			return
		}
		if known {
			w.repeat(key)
		} else {
			t := sp.flat(&sp.stranded)
			if s := t.Find(key); (s == nil || s.Value().Set() == 0) && w.makeRoom(1, 0) == 0 {
				return
			}
			if !d.strand(slot, hash, strandedBlock{sp.index, key, parent}) {
				return
			}
			w.info.blocks[TierGPU]++
			w.res.Stored++
		}
		parent = key
	}
}

// promote makes visible what waited for a block, which is now visible at p.
func (w *storing) promote(p pos, key uint64) {
	d, sp := w.d, w.run.sp
	type ready struct {
		at  pos
		key uint64
	}
	for stack := []ready{{p, key}}; len(stack) > 0; {
		r := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		waiting := w.info.behind[spaceKey{sp.index, r.key}]
		for _, hash := range slices.Clone(waiting) {
			b := w.info.stranded[hash]
			d.unstrand(w.run.slot, hash, b)
			one := storing{d: d, run: w.run, res: w.res, info: w.info, keys: []uint64{b.key}, hashes: []uint64{hash}, at: r.at, room: max(1, w.room), quiet: true}
			if one.some(1) {
				stack = append(stack, ready{one.at, b.key})
				continue
			}
			w.info.blocks[TierGPU]--
			d.partial.Put(w.run.slot, true)
		}
	}
}

// strandBehind takes from a slot's visible blocks those behind the given places,
// by stem and first offset to go: blocks before them are gone. One pass over the
// holder's names finds them all.
func (d *domain) strandBehind(slot int, from map[uint32]int) {
	info := &d.info[slot]
	type moved struct {
		hash uint64
		strandedBlock
	}
	var all []moved
	info.eachName(&d.stems, func(hash uint64, p pos) {
		first, ok := from[p.stem()]
		if !ok || p.off() < first {
			return
		}
		st := d.stems.at(p.stem())
		b := strandedBlock{space: int(st.space), key: st.key(p.off())}
		switch {
		case p.off() > 0:
			b.parent = st.key(p.off() - 1)
		default:
			b.parent = d.stems.at(st.parent.stem()).key(st.parent.off())
		}
		all = append(all, moved{hash, b})
	})
	for _, m := range all {
		info.take(&d.stems, m.hash)
	}
	for id, first := range from {
		d.leave(slot, id, first)
	}
	for _, m := range all {
		if !d.strand(slot, m.hash, m.strandedBlock) {
			info.blocks[TierGPU]--
			d.partial.Put(slot, true)
		}
	}
}

// leave takes a slot's blocks of a stem from an offset on.
func (d *domain) leave(slot int, id uint32, from int) {
	st := d.stems.at(id)
	held := d.cutoff(st, slot)
	if held <= from {
		return
	}
	parent := st.parent
	if !d.flip(id, st, from, held, slot) {
		d.partial.Put(slot, true)
		return
	}
	if from == 0 && parent != 0 {
		d.info[slot].kids.Add(uint64(parent), -1)
	}
}

// follow adds to from the stems behind blocks from an offset on that a slot has
// blocks of, and those behind them.
func (d *domain) follow(slot int, id uint32, off int, from map[uint32]int) {
	st := d.stems.at(id)
	if int(st.deep) < off {
		return
	}
	for c := st.child; c != 0; {
		child := d.stems.at(c)
		if _, known := from[c]; !known && child.parent.off() >= off && d.cutoff(child, slot) > 0 {
			from[c] = 0
			d.follow(slot, c, 0, from)
		}
		c = child.next
	}
}
