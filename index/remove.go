package index

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
		seat, ok := d.seating.seatOf(h.id)
		if ok {
			before := d.blocks()
			rest -= d.remove(seat, ev.Tier, ev.Engine, res)
			x.blocks.Add(int64(d.blocks() - before))
		}
		d.mu.Unlock()
	}
	res.Unknown += rest
}

// remove takes blocks from a holder and returns how many it knew. d.mu is held.
func (d *domain) remove(seat int, tier Tier, hashes []uint64, res *Result) (known int) {
	engine := flipper{sets: &d.sets, seat: seat}
	w := removing{d: d, seat: seat, tier: tier, res: res, flip: flipper{sets: &d.sets, seat: seat}}
	for i, hash := range hashes {
		if i%ahead == 0 && len(hashes) > 1 {
			d.touch(hashes[i:min(i+ahead, len(hashes))])
		}
		if w.byEngine(hash, &engine) || d.orphans.blocks > 0 && d.orphans.remove(seat, tier, hash) || w.byKey(keyOf(hash)) {
			known++
		}
	}
	w.flip.flush()
	engine.flush()
	d.x.epochs.retire() // what is emptied now may be reused after the lookups of now
	return known
}

// touch starts loading the slots of blocks about to be removed.
func (d *domain) touch(hashes []uint64) {
	sink := uint64(0)
	if d.engines.count() > 0 {
		for _, hash := range hashes {
			sink += d.engines.touch(hash)
		}
		for _, hash := range hashes {
			if entry := d.engines.find(hash); entry.found() {
				sink += d.spaces[entry.space()].gpu.touch(entry.key())
			}
		}
	}
	for _, sp := range d.spaces {
		if sp != nil && sp.plain {
			for _, hash := range hashes {
				sink += sp.gpu.touch(keyOf(hash))
			}
		}
	}
	d.sink = sink
}

// byEngine removes a block known by engine hash.
func (w *removing) byEngine(hash uint64, engine *flipper) bool {
	d := w.d
	entry := d.engines.find(hash)
	if !entry.found() || !d.sets.has(entry.set(), w.seat) {
		return false
	}
	sp, key := d.spaces[entry.space()], entry.key()
	found, gone := w.block(sp, key)
	if gone && w.onlyGPU(sp) || (gone || !found) && !w.holds(sp, key) {
		d.engines.release(entry, engine)
	}
	return found
}

// byKey removes a block stored by its key alone, from the first space that has it.
func (w *removing) byKey(key uint64) bool {
	for _, sp := range w.d.spaces {
		if sp == nil || !sp.plain {
			continue
		}
		if found, _ := w.block(sp, key); found {
			return true
		}
	}
	return false
}

// removing is the state while blocks of one holder are removed.
type removing struct {
	d    *domain
	seat int
	tier Tier
	res  *Result
	flip flipper

	lastGone uint64 // the block removed last: no child of its parent any more
}

// onlyGPU: nothing but GPU blocks were ever reported in the space.
func (w *removing) onlyGPU(sp *space) bool {
	return w.tier == TierGPU && sp.lower[TierCPU].Load() == nil && sp.lower[TierStorage].Load() == nil
}

func (w *removing) holds(sp *space, key uint64) bool {
	w.flip.flush()
	return w.d.holds(sp, key, w.seat)
}

// block removes one block. gone: it was the last copy in this tier.
func (w *removing) block(sp *space, key uint64) (found, gone bool) {
	if w.tier != TierGPU {
		return w.beside(sp.lower[w.tier].Load(), sp, key)
	}
	defer func() {
		if found {
			sp.cancelOne(w.d.info[w.seat].holder.id, key)
		}
	}()
	s := sp.gpu.find(key)
	if s == nil || !w.d.slotHas(s, w.seat) {
		return w.beside(sp.stranded.Load(), sp, key)
	}
	if w.copyLeft(sp, key) {
		return true, false
	}
	to, ok := w.flip.next(setID(s.val & valSet))
	if !ok {
		w.d.partial.put(w.seat, true)
		return true, false
	}
	sp.gpu.set(s, to)
	w.d.info[w.seat].blocks[TierGPU]--
	w.res.Removed++
	w.openHole(sp, s)
	w.lastGone = key
	return true, true
}

// openHole strands what the holder has behind the removed block.
func (w *removing) openHole(sp *space, s *slot) {
	if s.child == w.lastGone && s.val&valMulti == 0 {
		return // evictions come leaf first: the usual case
	}
	sp.children(s, func(child uint64) bool {
		if w.d.slotHas(sp.gpu.find(child), w.seat) {
			w.flip.flush()
			w.d.strand(sp, child, w.seat)
		}
		return true
	})
}

func (w *removing) beside(t *table, sp *space, key uint64) (found, gone bool) {
	if t == nil {
		return false, false
	}
	s := t.find(key)
	if !w.d.slotHas(s, w.seat) {
		return false, false
	}
	if w.copyLeft(sp, key) {
		return true, false
	}
	w.flip.flush()
	if !w.d.flipSlot(t, s, w.seat) {
		return true, false
	}
	info := &w.d.info[w.seat]
	info.blocks[w.tier]--
	if w.tier == TierGPU {
		info.stranded--
	}
	w.res.Removed++
	return true, true
}

// copyLeft takes one of several copies away.
func (w *removing) copyLeft(sp *space, key uint64) bool {
	if len(w.d.copies) == 0 {
		return false
	}
	k := copyKey{int32(sp.index), int32(w.seat), w.tier, key}
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
