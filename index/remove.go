package index

import "slices"

// removed applies a Removed event. h.mu is held.
func (x *Index) removed(h *holder, ev *Event, res *Result) {
	if ev.Tier >= tiers {
		res.Dropped += len(ev.Engine)
		return
	}
	rest := len(ev.Engine)
	for _, d := range h.domains {
		if d.key.group != ev.Scope.Group || rest == 0 {
			continue
		}
		d.mu.Lock()
		slot, ok := d.slots.Of(int32(h.id))
		if ok {
			before := d.blocks()
			rest -= d.remove(slot, ev.Tier, ev.Engine, res)
			x.blocks.Add(int64(d.blocks() - before))
		}
		d.mu.Unlock()
	}
	res.Unknown += rest
}

// remove takes blocks from a holder and returns how many it knew. d.mu is held.
func (d *domain) remove(slot int, tier Tier, hashes []uint64, res *Result) (known int) {
	w := removing{d: d, slot: slot, tier: tier, res: res, info: &d.info[slot]}
	if w.rising(hashes) {
		d.keys = append(d.keys[:0], hashes...)
		slices.Reverse(d.keys)
		hashes = d.keys
	}
	for i, hash := range hashes {
		if i%ahead == 0 && len(hashes) > 1 {
			d.sink = w.touch(hashes[i:min(i+ahead, len(hashes))])
		}
		if w.one(hash) || d.orphans.blocks > 0 && d.orphans.remove(slot, tier, hash) {
			known++
		}
	}
	w.flush()
	d.x.clock.Retire() // what is emptied now may be reused after the lookups of now
	return known
}

// removing is the state while blocks of one holder are removed.
type removing struct {
	d    *domain
	slot int
	tier Tier
	res  *Result
	info *slotInfo

	// What is removed from the end of the holder's blocks of a stem, and not yet
	// taken out of it.
	stem     uint32
	st       *stem
	from, to int
	watched  bool // there are copies in the domain, or speculation in the stem's space
}

// rising says whether the blocks are named from the first of a stretch to the last:
// taken one by one, each would leave a hole before the others.
func (w *removing) rising(hashes []uint64) bool {
	if w.tier != TierGPU || len(hashes) < 2 {
		return false
	}
	_, first := w.info.own(&w.d.stems, hashes[0])
	_, second := w.info.own(&w.d.stems, hashes[1])
	return first != 0 && second == first+1
}

func (w *removing) touch(hashes []uint64) (sink uint64) {
	for _, hash := range hashes {
		sink += w.info.lane.Touch(hash)
	}
	return sink
}

func (w *removing) one(hash uint64) bool {
	if w.tier != TierGPU {
		return w.beside(hash)
	}
	at, p := w.info.own(&w.d.stems, hash)
	odd := p == 0
	if odd {
		if p = pos(w.info.odd.Get(hash)); p == 0 {
			return w.stranded(hash)
		}
	}
	id, off := p.stem(), p.off()
	if id != w.stem {
		w.turn(id)
	}
	if w.watched {
		sp, key := w.d.spaces[w.st.space], w.st.key(off)
		sp.cancelOne(w.info.holder.id, key)
		if w.copyLeft(sp, key) {
			return true
		}
	}
	if odd {
		w.info.odd.Delete(hash)
	} else {
		w.info.lane.Delete(hash, at)
	}
	w.count()
	if off != w.from-1 || off <= int(w.st.deep) && w.info.kids.Get(uint64(p)) > 0 {
		w.hole(id, off)
		return true
	}
	w.from = off
	return true
}

func (w *removing) count() {
	w.info.blocks[w.tier]--
	w.res.Removed++
}

// turn goes on with another stem.
func (w *removing) turn(id uint32) {
	w.flush()
	w.stem, w.st = id, w.d.stems.at(id)
	w.to = w.d.cutoff(w.st, w.slot)
	w.from = w.to
	w.watched = len(w.d.copies) > 0 || w.d.spaces[w.st.space].leases[leaseSpeculative].Load() != nil
}

// flush takes what was removed out of its stem.
func (w *removing) flush() {
	if w.from == w.to {
		return
	}
	parent, stem := w.st.parent, w.stem
	w.stem = 0
	if !w.d.flip(stem, w.st, w.from, w.to, w.slot) {
		w.d.partial.Put(w.slot, true)
	} else if w.from == 0 && parent != 0 {
		w.info.kids.Add(uint64(parent), -1)
	}
	w.from, w.to = 0, 0
}

// hole removes a block before others of the holder, which lack it from now on.
func (w *removing) hole(id uint32, off int) {
	w.flush()
	behind := map[uint32]int{id: off}
	w.d.follow(w.slot, id, off, behind)
	w.d.strandBehind(w.slot, behind)
	w.stem = 0
}

// stranded removes a block that lacks one before it.
func (w *removing) stranded(hash uint64) bool {
	b, ok := w.info.stranded[hash]
	if !ok {
		return false
	}
	sp := w.d.spaces[b.space]
	sp.cancelOne(w.info.holder.id, b.key)
	if !w.copyLeft(sp, b.key) {
		w.d.unstrand(w.slot, hash, b)
		w.count()
	}
	return true
}

// beside removes a block from a tier below the GPU.
func (w *removing) beside(hash uint64) bool {
	for index, names := range w.info.lower {
		key := names.Get(hash)
		if key == 0 {
			continue
		}
		sp := w.d.spaces[index]
		t := sp.lower[w.tier].Load()
		if t == nil {
			continue
		}
		s := t.Find(key)
		if !w.d.rowHas(s, w.slot) {
			continue
		}
		if w.copyLeft(sp, key) {
			return true
		}
		if !w.d.toggleIn(t, s, w.slot) {
			return true
		}
		w.count()
		if !w.d.inTable(&sp.lower[TierCPU], key, w.slot) && !w.d.inTable(&sp.lower[TierStorage], key, w.slot) {
			names.Delete(hash)
		}
		return true
	}
	return false
}

// copyLeft takes one of several copies away.
func (w *removing) copyLeft(sp *space, key uint64) bool {
	if len(w.d.copies) == 0 {
		return false
	}
	k := copyKey{int32(sp.index), int32(w.slot), w.tier, key}
	n := w.d.copies[k]
	if n == 0 {
		return false
	}
	if n == 1 {
		delete(w.d.copies, k)
	} else {
		w.d.copies[k] = n - 1
	}
	w.res.Copies++
	return true
}
