package expiry

import (
	"container/heap"
	"slices"
	"sync"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/prefixhash"
)

// lease is an operation: entries of a holder that last until a deadline or, with
// until 0, that end.
type lease struct {
	next   *lease // on the stack
	holder int32
	slot   int
	keys   []uint64
	until  int64

	number uint64 // above 0
	left   int    // entries that last by it
	place  int    // in the heap
}

var leases = sync.Pool{New: func() any { return new(lease) }}

func newLease(holder int32, keys []prefixhash.Key, until int64) *lease {
	op := leases.Get().(*lease)
	op.holder, op.until, op.keys = holder, until, slices.Grow(op.keys[:0], len(keys))
	for _, k := range keys {
		op.keys = append(op.keys, hashtable.KeyOf(uint64(k)))
	}
	return op
}

// leaseHeap is the leases that entries last by, the earliest deadline first.
type leaseHeap []*lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].until < h[j].until }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *leaseHeap) Push(v any) {
	op := v.(*lease)
	op.place = len(*h)
	*h = append(*h, op)
}

func (h *leaseHeap) Pop() any {
	old := *h
	v := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return v
}

// apply does one operation and reports whether op is kept.
func (t *Table) apply(op *lease) bool {
	slot, ok := t.slots.Of(op.holder)
	if op.until == 0 {
		if ok {
			t.endAll(op.keys, slot, nil)
		}
		return false
	}
	if op.until <= t.s.Now().UnixNano() { // over before it was done: lookups would see it until the next tick
		return false
	}
	if !ok {
		if slot, ok = t.join(op.holder); !ok {
			return false
		}
	}
	for t.s.Len()+len(op.keys) > t.s.Max && len(t.heap) > 0 {
		t.endFirst()
	}
	op.slot, op.left = slot, 0
	t.enter(op)
	f := holderset.Toggler{Sets: &t.sets, Slot: slot}
	before := t.held.Load()
	for i, key := range op.keys {
		t.touchAhead(op.keys, i)
		if !t.extend(&f, key, op) {
			break
		}
	}
	f.Flush()
	t.s.held.Add(t.held.Load() - before)
	if op.left == 0 {
		t.finish(op)
	}
	return true
}

// touchAhead loads the next rows before they are worked on.
func (t *Table) touchAhead(keys []uint64, i int) {
	const ahead = 32
	if i%ahead == 0 {
		t.rows.Touch(keys[i:min(i+ahead, len(keys))])
	}
}

// join gives a holder a slot.
func (t *Table) join(holder int32) (int, bool) {
	slot, ok := t.slots.Take(holder)
	if !ok {
		return 0, false
	}
	for len(t.pending) <= slot {
		t.pending = append(t.pending, 0)
	}
	if !t.s.Join(holder, t) {
		t.slots.Kill(slot)
		t.freeIdle(slot)
		return 0, false
	}
	return slot, true
}

// freeIdle frees a killed slot that has no leases left.
func (t *Table) freeIdle(slot int) {
	if t.pending[slot] == 0 && !t.slots.Live.Has(slot) {
		t.slots.Free([]int{slot})
	}
}

// expire ends the leases whose deadline has come.
func (t *Table) expire(now int64) {
	for len(t.heap) > 0 && t.heap[0].until <= now {
		t.endFirst()
	}
}

// endFirst ends the lease with the earliest deadline. Entries with a later lease
// stay.
func (t *Table) endFirst() {
	op := t.heap[0]
	op.left++ // keeps op while its keys are read
	t.endAll(op.keys, op.slot, op)
	t.lose(op)
}

// extend makes an entry last by a lease, unless it lasts longer. It fails when
// there are too many different sets.
func (t *Table) extend(f *holderset.Toggler, key uint64, op *lease) (ok bool) {
	row := t.rows.Insert(key)
	cur := row.Value().Set()
	was := t.leaseOf(row, f.Slot)
	if was != nil && was.until >= op.until {
		return true
	}
	to := cur
	switch {
	case cur == 0:
		to = holderset.Single(f.Slot)
	case !t.sets.Has(cur, f.Slot):
		if to, ok = f.Next(cur); !ok {
			return false
		}
		if cur < holderset.FirstInterned {
			t.owners.Set(key, int(cur)-1, row.Owner)
		}
	}
	if to < holderset.FirstInterned {
		row.Owner = op.number
	} else {
		t.owners.Set(key, f.Slot, op.number)
	}
	tick := t.s.tick(op.until)
	if cur != 0 {
		tick = max(tick, row.Value().Tick())
	}
	t.rows.SetUntil(row, to, tick)
	op.left++
	if was == nil {
		t.held.Add(1)
	} else {
		t.lose(was)
	}
	return true
}

// leaseOf is the lease that a slot's entry in a row lasts by, nil when there is no
// entry.
func (t *Table) leaseOf(row *hashtable.Row, slot int) *lease {
	number := uint64(0)
	switch cur := row.Value().Set(); {
	case cur == holderset.Single(slot):
		number = row.Owner
	case cur >= holderset.FirstInterned:
		number = t.owners.Get(row.Key(), slot)
	}
	if number == 0 {
		return nil
	}
	return t.leases[number-1]
}

// enter gives a lease a number and its place in the heap.
func (t *Table) enter(op *lease) {
	if n := len(t.free); n > 0 {
		op.number = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		t.leases = append(t.leases, nil)
		op.number = uint64(len(t.leases))
	}
	t.leases[op.number-1] = op
	t.pending[op.slot]++
	heap.Push(&t.heap, op)
}

// lose counts an entry that no longer lasts by a lease.
func (t *Table) lose(op *lease) {
	if op.left--; op.left == 0 {
		t.finish(op)
	}
}

// finish forgets a lease that no entry lasts by.
func (t *Table) finish(op *lease) {
	heap.Remove(&t.heap, op.place)
	t.leases[op.number-1] = nil
	t.free = append(t.free, op.number)
	t.pending[op.slot]--
	t.freeIdle(op.slot)
	leases.Put(op)
}

// endAll ends a slot's entries, all or those that last by one lease.
func (t *Table) endAll(keys []uint64, slot int, by *lease) {
	for i, key := range keys {
		t.touchAhead(keys, i)
		if row := t.rows.Find(key); row != nil {
			if op := t.leaseOf(row, slot); op != nil && (by == nil || op == by) {
				t.end(row, slot, op)
			}
		}
	}
}

// end ends one entry, which lasted by op.
func (t *Table) end(row *hashtable.Row, slot int, op *lease) {
	cur := row.Value().Set()
	to := holderset.ID(0)
	if cur >= holderset.FirstInterned {
		t.owners.Delete(row.Key(), slot)
		var ok bool
		if to, ok = t.sets.Toggle(cur, slot); !ok {
			to = cur // too many different sets: lookups see the entry until its tick
		}
	}
	if to != cur {
		t.rows.Set(row, to)
		t.sets.Release(cur, 1)
	}
	if to != 0 && to < holderset.FirstInterned { // one is left
		row.Owner = t.owners.Delete(row.Key(), int(to)-1)
	}
	t.emptied = t.emptied || to == 0
	t.held.Add(-1)
	t.s.held.Add(-1)
	t.lose(op)
}
