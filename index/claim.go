package index

import (
	"container/heap"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
)

// claimHeap is the claims that entries last by, the one with the earliest
// deadline first.
type claimHeap []*leaseOp

func (h claimHeap) Len() int           { return len(h) }
func (h claimHeap) Less(i, j int) bool { return h[i].until < h[j].until }
func (h claimHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *claimHeap) Push(v any) {
	op := v.(*leaseOp)
	op.place = len(*h)
	*h = append(*h, op)
}

func (h *claimHeap) Pop() any {
	old := *h
	v := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return v
}

// claim makes an entry last by a claim, unless it lasts longer. It fails when
// there are too many different sets.
func (l *leases) claim(f *holderset.Toggler, key uint64, c *leaseOp) (ok bool) {
	s := l.table.Insert(key)
	cur := s.Value().Set()
	was := l.owner(s, f.Slot)
	if was != nil && was.until >= c.until {
		return true
	}
	to := cur
	switch {
	case cur == 0:
		to = holderset.ID(f.Slot + 1)
	case !l.sets.Has(cur, f.Slot):
		if to, ok = f.Next(cur); !ok {
			return false
		}
		if cur < holderset.FirstInterned {
			l.owners.Set(key, int(cur)-1, s.Owner)
		}
	}
	if to < holderset.FirstInterned {
		s.Owner = c.number
	} else {
		l.owners.Set(key, f.Slot, c.number)
	}
	tick := l.x.coarse(c.until)
	if cur != 0 {
		tick = max(tick, s.Value().Tick())
	}
	l.table.SetUntil(s, to, tick)
	c.left++
	if was == nil {
		l.held.Add(1)
	} else {
		l.lose(was)
	}
	return true
}

// owner is the claim that a slot's entry in a slot lasts by, nil when there is
// no entry.
func (l *leases) owner(s *hashtable.Row, slot int) *leaseOp {
	number := uint64(0)
	switch cur := s.Value().Set(); {
	case int(cur) == slot+1:
		number = s.Owner
	case cur >= holderset.FirstInterned:
		number = l.owners.Get(s.Key(), slot)
	}
	if number == 0 {
		return nil
	}
	return l.numbers[number-1]
}

// enter gives a claim a number and its place among those that end.
func (l *leases) enter(c *leaseOp) {
	if n := len(l.free); n > 0 {
		c.number = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		l.numbers = append(l.numbers, nil)
		c.number = uint64(len(l.numbers))
	}
	l.numbers[c.number-1] = c
	l.pending[c.slot]++
	heap.Push(&l.claims, c)
}

// lose notes that an entry does not last by a claim any more.
func (l *leases) lose(c *leaseOp) {
	if c.left--; c.left == 0 {
		l.finish(c)
	}
}

// finish forgets a claim that no entry lasts by.
func (l *leases) finish(c *leaseOp) {
	heap.Remove(&l.claims, c.place)
	l.numbers[c.number-1] = nil
	l.free = append(l.free, c.number)
	l.pending[c.slot]--
	if l.pending[c.slot] == 0 && !l.slots.Live.Has(c.slot) {
		l.slots.Free([]int{c.slot})
	}
	leaseOps.Put(c)
}

// endAll takes the entries of a slot away, all or those that last by one claim.
func (l *leases) endAll(keys []uint64, slot int, by *leaseOp) {
	for i, key := range keys {
		if i%ahead == 0 {
			l.table.Touch(keys[i:min(i+ahead, len(keys))])
		}
		if s := l.table.Find(key); s != nil {
			if c := l.owner(s, slot); c != nil && (by == nil || c == by) {
				l.end(s, slot, c)
			}
		}
	}
}

// end takes one entry away, which lasted by c.
func (l *leases) end(s *hashtable.Row, slot int, c *leaseOp) {
	cur := s.Value().Set()
	to := holderset.ID(0)
	if cur >= holderset.FirstInterned {
		l.owners.Delete(s.Key(), slot)
		var ok bool
		if to, ok = l.sets.Toggle(cur, slot); !ok {
			to = cur // too many different sets: it is seen until its tick
		}
	}
	if to != cur {
		l.table.Set(s, to)
		l.sets.Release(cur, 1)
	}
	if to != 0 && to < holderset.FirstInterned { // one is left
		s.Owner = l.owners.Delete(s.Key(), int(to)-1)
	}
	l.emptied = l.emptied || to == 0
	l.held.Add(-1)
	l.x.leased.Add(-1)
	l.lose(c)
}

// popClaim ends the claim with the earliest deadline; entries claimed again
// until later stay.
func (l *leases) popClaim() {
	c := l.claims[0]
	c.left++ // is ours while its keys are read
	l.endAll(c.keys, c.slot, c)
	l.lose(c)
}
