package expiry

import (
	"container/heap"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/prefixhash"
)

// lease is a deadline that one call gave to a holder's entries.
type lease struct {
	slot   int
	keys   []uint64
	until  int64
	number uint64 // above 0
	left   int    // entries that last by this lease
	place  int    // in the heap
}

func hashed(keys []prefixhash.Key) []uint64 {
	all := make([]uint64, len(keys))
	for i, k := range keys {
		all[i] = hashtable.KeyOf(uint64(k))
	}
	return all
}

// leaseHeap is the leases by which entries last, the earliest deadline first.
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

// set is Set.
func (t *Table) set(holder int32, keys []prefixhash.Key, until int64) {
	if until <= t.s.Now().UnixNano() { // lookups would see the entries until the next tick
		return
	}
	slot, ok := t.slots.Of(holder)
	if !ok {
		if slot, ok = t.join(holder); !ok {
			return
		}
	}
	for t.s.Len()+len(keys) > t.s.Max && len(t.heap) > 0 {
		t.endFirst()
	}
	op := &lease{slot: slot, keys: hashed(keys), until: until}
	t.enter(op)
	t.count(len(keys)) // before lookups see the entries
	t.count(t.extendAll(op) - len(keys))
	if op.left == 0 {
		t.finish(op)
	}
}

// count counts entries of this table and of all.
func (t *Table) count(n int) {
	t.held.Add(int64(n))
	t.s.held.Add(int64(n))
}

// extendAll makes the entries of a lease and returns how many of them are new.
func (t *Table) extendAll(op *lease) (made int) {
	f := holderset.Toggler{Sets: &t.sets, Slot: op.slot}
	defer f.Flush()
	tick := t.s.tick(op.until)
	for _, key := range op.keys {
		row := t.rows.Insert(key)
		if row.Value().Set() == 0 { // mostly
			row.Owner = op.number
			t.rows.SetUntil(row, holderset.Single(op.slot), tick)
			op.left++
			made++
			continue
		}
		is, ok := t.extend(&f, row, op, tick)
		if !ok {
			break
		}
		if is {
			made++
		}
	}
	return made
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

// endFirst ends the lease with the earliest deadline. Entries with a later lease stay.
func (t *Table) endFirst() {
	op := t.heap[0]
	op.left++ // keeps op while its keys are read
	t.endAll(op.keys, op.slot, op)
	t.lose(op)
}

// extend makes an entry of a key that has holders last by a lease, unless it lasts
// longer. made reports a new entry. extend fails when there are too many different
// sets.
func (t *Table) extend(f *holderset.Toggler, row *hashtable.Row, op *lease, tick uint64) (made, ok bool) {
	cur, key := row.Value().Set(), row.Key()
	was := t.leaseOf(row, f.Slot)
	if was != nil && was.until >= op.until {
		return false, true
	}
	to := cur
	if !t.sets.Has(cur, f.Slot) {
		if to, ok = f.Next(cur); !ok {
			return false, false
		}
		if cur < holderset.FirstInterned {
			t.owners[entry{key, int(cur) - 1}] = row.Owner
		}
	}
	if to < holderset.FirstInterned {
		row.Owner = op.number
	} else {
		t.owners[entry{key, f.Slot}] = op.number
	}
	t.rows.SetUntil(row, to, max(tick, row.Value().Tick()))
	op.left++
	if was != nil {
		t.lose(was)
	}
	return was == nil, true
}

// leaseOf returns the lease by which a slot's entry in a row lasts, nil when there is
// no entry.
func (t *Table) leaseOf(row *hashtable.Row, slot int) *lease {
	number := uint64(0)
	switch cur := row.Value().Set(); {
	case cur == holderset.Single(slot):
		number = row.Owner
	case cur >= holderset.FirstInterned:
		number = t.owners[entry{row.Key(), slot}]
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

// finish drops a lease that no entry lasts by.
func (t *Table) finish(op *lease) {
	heap.Remove(&t.heap, op.place)
	t.leases[op.number-1] = nil
	t.free = append(t.free, op.number)
	t.pending[op.slot]--
	t.freeIdle(op.slot)
}

// endAll ends a slot's entries of keys: all, or the ones that last by one lease.
func (t *Table) endAll(keys []uint64, slot int, by *lease) {
	ended := 0
	for _, key := range keys {
		if row := t.rows.Find(key); row != nil {
			if op := t.leaseOf(row, slot); op != nil && (by == nil || op == by) {
				t.end(row, slot)
				t.lose(op)
				ended++
			}
		}
	}
	t.count(-ended)
}

// end ends one entry.
func (t *Table) end(row *hashtable.Row, slot int) {
	cur := row.Value().Set()
	if cur < holderset.FirstInterned { // mostly
		t.rows.Set(row, 0)
		t.emptied = true
		return
	}
	delete(t.owners, entry{row.Key(), slot})
	to, ok := t.sets.Toggle(cur, slot)
	if !ok {
		return // too many different sets: lookups see the entry until its tick
	}
	t.rows.Set(row, to)
	t.sets.Release(cur, 1)
	if to < holderset.FirstInterned { // one is left
		last := entry{row.Key(), int(to) - 1}
		row.Owner = t.owners[last]
		delete(t.owners, last)
	}
}
