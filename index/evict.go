package index

import (
	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
)

// evictSample is how many stems are compared to find an old one, and evictShare
// of a cap is forgotten at once: to forget takes a pass over all names of those
// who held what goes.
const (
	evictSample = 16
	evictShare  = 256
)

// evict forgets at least n of a space's blocks, if there are as many: the ends of
// old stems but of one, then what is stranded or below the GPU. Their holders are
// marked incomplete. It returns how many went.
func (d *domain) evict(sp *space, n int, spare uint32) (gone int) {
	most := min(d.x.o.MaxScopeBlocks, d.x.o.MaxBlocks)
	gone = d.evictStems(sp, max(n, most/evictShare), spare)
	for i, t := range []*hashtable.Table{sp.stranded.Load(), sp.lower[TierCPU].Load(), sp.lower[TierStorage].Load()} {
		for q := 0; t != nil && q < hashtable.Parts && gone < n; q++ {
			for s := range t.Each(q) {
				if gone >= n {
					break
				}
				d.forgetBlock(sp, t, s, Tier(i), i == 0)
				gone++
			}
		}
	}
	return gone
}

// evictStems forgets about n blocks at the ends of old stems.
func (d *domain) evictStems(sp *space, n int, spare uint32) (gone int) {
	ends := map[uint32]int{} // where stems are to end
	var slots holderset.Mask
	for gone < n {
		id, end := d.oldestEnd(sp, ends, spare)
		if id == 0 {
			break
		}
		st := d.stems.at(id)
		to := max(end, st.blocks()-(n-gone))
		gone += st.blocks() - to
		ends[id] = to
		d.old = st.appendLevels(d.old[:0])
		for _, l := range d.old {
			if l.end > to {
				d.sets.Each(l.set, func(slot int) { slots.Put(slot, true) })
			}
		}
	}
	for slot := range d.info {
		if slots.Has(slot) && d.info[slot].holder != nil {
			d.forgetEnds(sp, slot, ends)
		}
	}
	d.x.evicted.Add(uint64(gone))
	return gone
}

// oldestEnd returns the oldest of some stems that have blocks behind which no
// stem follows, and how many blocks of it must stay.
func (d *domain) oldestEnd(sp *space, chosen map[uint32]int, spare uint32) (oldest uint32, end int) {
	tick := uint16(d.x.o.Now().Unix() / 60)
	age, found := uint16(0), 0
	for range d.stems.made {
		if sp.hand++; sp.hand > d.stems.made {
			sp.hand = 1
		}
		id := sp.hand
		st := d.stems.at(id)
		n := st.blocks()
		if _, again := chosen[id]; again || n == 0 || int(st.space) != sp.index || id == spare {
			continue
		}
		floor := d.floor(st, 0)
		if floor == n {
			continue
		}
		if a := tick - st.tick; oldest == 0 || a > age {
			oldest, age, end = id, a, floor
		}
		if found++; found == evictSample {
			break
		}
	}
	return oldest, end
}

// forgetEnds takes the ends of stems from a slot.
func (d *domain) forgetEnds(sp *space, slot int, ends map[uint32]int) {
	info := &d.info[slot]
	if d.slots.Live.Has(slot) { // what a dead one calls its blocks means nothing any more
		var gone []uint64
		info.eachName(&d.stems, func(name uint64, p pos) {
			if end, ok := ends[p.stem()]; ok && p.off() >= end {
				delete(d.copies, copyKey{int32(sp.index), int32(slot), TierGPU, d.stems.at(p.stem()).key(p.off())})
				gone = append(gone, name)
			}
		})
		for _, name := range gone {
			info.take(&d.stems, name)
		}
		info.blocks[TierGPU] -= len(gone)
		d.partial.Put(slot, true)
	}
	for id, end := range ends {
		d.leave(slot, id, end)
	}
}

// forgetBlock takes a block from all its holders in one table.
func (d *domain) forgetBlock(sp *space, t *hashtable.Table, s *hashtable.Row, tier Tier, stranded bool) {
	id := s.Value().Set()
	d.sets.Each(id, func(slot int) {
		info := &d.info[slot]
		if info.holder == nil {
			return
		}
		info.blocks[tier]--
		d.partial.Put(slot, true)
		delete(d.copies, copyKey{int32(sp.index), int32(slot), tier, s.Key()})
		if stranded {
			d.forgetStranded(slot, spaceKey{sp.index, s.Key()})
		}
	})
	t.Set(s, 0)
	d.sets.Release(id, 1)
	d.x.evicted.Add(1)
	if d.evicted++; d.evicted > d.blocks()/2+4096 { // the names of evicted blocks stay within half of the blocks
		d.forgetEvicted()
	}
}

// forgetStranded drops a holder's name for a stranded block.
func (d *domain) forgetStranded(slot int, k spaceKey) {
	info := &d.info[slot]
	for hash, b := range info.stranded {
		if b.space == k.space && b.key == k.key {
			info.wait(hash, b, false)
			return
		}
	}
}
