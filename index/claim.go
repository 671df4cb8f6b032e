package index

import (
	"container/heap"
	"sync/atomic"
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
func (l *leases) claim(f *flipper, key uint64, c *leaseOp) (ok bool) {
	s, _ := l.table.insert(key)
	cur := setID(s.val & valSet)
	was := l.owner(s, f.seat)
	if was != nil && was.until >= c.until {
		return true
	}
	to := cur
	switch {
	case cur == 0:
		to = setID(f.seat + 1)
		l.table.live[l.table.partOf(key)]++
	case !l.sets.has(cur, f.seat):
		if to, ok = f.next(cur); !ok {
			return false
		}
		if cur < firstSet {
			l.owners.set(key, int32(cur)-1, int64(s.child))
		}
	}
	if to < firstSet {
		s.child = uint64(c.number)
	} else {
		l.owners.set(key, int32(f.seat), c.number)
	}
	tick := l.x.coarse(c.until)
	if cur != 0 {
		tick = max(tick, s.val>>valTick)
	}
	atomic.StoreUint64(&s.val, uint64(to)|tick<<valTick)
	c.left++
	if was == nil {
		l.held.Add(1)
	} else {
		l.lose(was)
	}
	return true
}

// owner is the claim that a seat's entry in a slot lasts by, nil when there is
// no entry.
func (l *leases) owner(s *slot, seat int) *leaseOp {
	number := int64(0)
	switch cur := setID(s.val & valSet); {
	case int(cur) == seat+1:
		number = int64(s.child)
	case cur >= firstSet:
		number = l.owners.get(s.key, int32(seat))
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
		c.number = int64(len(l.numbers))
	}
	l.numbers[c.number-1] = c
	l.pending[c.seat]++
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
	l.pending[c.seat]--
	if l.pending[c.seat] == 0 && !l.seating.live.has(c.seat) {
		l.seating.swept([]int{c.seat})
	}
	leaseOps.Put(c)
}

// endAll takes the entries of a seat away, all or those that last by one claim.
func (l *leases) endAll(keys []uint64, seat int, by *leaseOp) {
	for i, key := range keys {
		if i%ahead == 0 {
			l.table.touchAll(keys[i:min(i+ahead, len(keys))])
		}
		if s := l.table.find(key); s != nil {
			if c := l.owner(s, seat); c != nil && (by == nil || c == by) {
				l.end(s, seat, c)
			}
		}
	}
}

// end takes one entry away, which lasted by c.
func (l *leases) end(s *slot, seat int, c *leaseOp) {
	cur := setID(s.val & valSet)
	to := setID(0)
	if cur >= firstSet {
		l.owners.remove(s.key, int32(seat))
		var ok bool
		if to, ok = l.sets.flip(cur, seat); !ok {
			to = cur // too many different sets: it is seen until its tick
		}
	}
	if to != cur {
		l.table.set(s, to)
		l.sets.drop(cur, 1)
	}
	if to != 0 && to < firstSet { // one is left
		other := int32(to) - 1
		s.child = uint64(l.owners.get(s.key, other))
		l.owners.remove(s.key, other)
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
	l.endAll(c.keys, c.seat, c)
	l.lose(c)
}
