package index

import (
	"slices"
	"time"
)

// Eviction looks at up to evictLook blocks for one without children, and takes
// the oldest of the first evictSample it finds.
const (
	evictSample = 16
	evictLook   = 4096
)

// evict forgets the oldest of some leaves of the space, and marks its holders
// incomplete. The given keys are spared. false: there is nothing to evict.
func (d *domain) evict(sp *space, spare ...uint64) bool {
	if s := sp.oldestLeaf(d.x.o.Now(), spare); s != nil {
		d.forgetBlock(sp, sp.gpu, s, TierGPU, 0)
		return true
	}
	for i, t := range []*table{sp.stranded.Load(), sp.lower[TierCPU].Load(), sp.lower[TierStorage].Load()} {
		if t == nil || t.count() == 0 {
			continue
		}
		for q := range t.parts {
			p := t.parts[q].Load()
			for k := range p.n {
				s := p.at(k)
				if s.val&valSet != 0 && !slices.Contains(spare, s.key) {
					stranded := 0
					if i == 0 {
						stranded = 1
					}
					d.forgetBlock(sp, t, s, Tier(i), stranded)
					return true
				}
			}
		}
	}
	return false
}

// oldestLeaf walks on from where the last eviction stopped.
func (sp *space) oldestLeaf(now time.Time, spare []uint64) (oldest *slot) {
	tick := uint64(now.Unix()/60) & 0xffff
	age, found := uint64(0), 0
	total := 0
	for q := range sp.gpu.parts {
		total += int(sp.gpu.parts[q].Load().n)
	}
	for range min(total, evictLook*tableParts) {
		q := sp.hand % tableParts
		p := sp.gpu.parts[q].Load()
		s := p.at(sp.hand / tableParts % p.n)
		sp.hand++
		if s.val&valSet == 0 || slices.Contains(spare, s.key) || sp.hasChild(s) {
			continue
		}
		if a := (tick - s.val>>valTick) & 0xffff; oldest == nil || a > age {
			oldest, age = s, a
		}
		if found++; found == evictSample {
			break
		}
	}
	return oldest
}

// forgetBlock takes a block from all its holders in one table.
func (d *domain) forgetBlock(sp *space, t *table, s *slot, tier Tier, stranded int) {
	id := setID(s.val & valSet)
	d.sets.each(id, func(seat int) {
		info := &d.info[seat]
		if info.holder == nil {
			return
		}
		info.blocks[tier]--
		info.stranded -= stranded
		d.partial.put(seat, true)
		delete(d.copies, copyKey{int32(sp.index), int32(seat), tier, s.key})
	})
	t.set(s, 0)
	d.sets.drop(id, 1)
	d.x.evicted.Add(1)
	if d.evicted++; d.evicted > d.blocks()/2+4096 { // the hashes of evicted blocks stay within half of the blocks
		d.forgetEvicted()
	}
}
