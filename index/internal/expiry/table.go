package expiry

import (
	"sync"
	"sync/atomic"
	"time"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/index/internal/offheap"
	"warmroute/prefixhash"
)

// Shared has the parts that the tables of one index share.
type Shared struct {
	Clock *epoch.Clock
	Pool  *offheap.Pool
	Seed  uint64
	Now   func() time.Time
	Start int64 // ticks count from here
	Max   int   // bounds the entries of all tables

	// Join is called before the first entry of a holder in a table. It has the table
	// killed with the holder. false: the holder is not known.
	Join func(holder int32, t *Table) bool
	// Wake is called when a table's next deadline comes earlier than before.
	Wake func()

	held atomic.Int64
}

// Len returns how many entries all tables have.
func (s *Shared) Len() int { return int(s.held.Load()) }

// tickShift is log2 of a tick in nanoseconds: 32 bits of ticks are two years.
const tickShift = 24

// tick returns the first tick that is not before a deadline.
func (s *Shared) tick(at int64) uint64 {
	return uint64(min(max(0, at-s.Start+1<<tickShift-1)>>tickShift, hashtable.MaxTick))
}

// Tick returns the current tick.
func (s *Shared) Tick() uint64 { return s.tick(s.Now().UnixNano() - 1<<tickShift + 1) }

// Table is the entries of one scope. A nil Table has none.
type Table struct {
	s *Shared

	mu      sync.Mutex
	closed  bool
	slots   holderset.Slots
	sets    holderset.Sets
	rows    *hashtable.Table // Owner is the lease of the only holder
	owners  map[entry]uint64 // leases of keys with two and more holders, by number
	emptied bool             // rows have been emptied since the last change
	heap    leaseHeap
	leases  []*lease     // by number - 1
	free    []uint64     // numbers without a lease
	pending []int        // leases in the heap, by slot
	next    atomic.Int64 // earliest deadline, 0 = none

	held atomic.Int64 // entries
}

// entry is a key of a slot's holder.
type entry struct {
	key  uint64
	slot int
}

// NewTable makes an empty table.
func NewTable(s *Shared) *Table {
	t := &Table{s: s, rows: hashtable.NewTable(s.Clock, s.Pool, s.Seed), owners: map[entry]uint64{}}
	t.rows.Churns = true
	t.slots.Init(s.Clock)
	t.sets.Init(s.Clock)
	return t
}

// Len returns the number of entries.
func (t *Table) Len() int {
	if t == nil {
		return 0
	}
	return int(t.held.Load())
}

// Counts are a table's sizes, for tests.
type Counts struct {
	Keys, Owners, Leases, Sets int
	Builds                     uint64 // arrays replaced
}

// Counts returns the table's sizes.
func (t *Table) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Counts{t.rows.Len(), len(t.owners), len(t.heap), t.sets.Len(), t.rows.Builds()}
}

// Next returns the earliest deadline, 0 when there is none.
func (t *Table) Next() int64 {
	if t == nil {
		return 0
	}
	return t.next.Load()
}

// Get returns the set of slots that have a key at a tick.
func (t *Table) Get(key, tick uint64) holderset.ID {
	if v := t.rows.Get(key); v.Tick() > tick {
		return v.Set()
	}
	return 0
}

// Sets returns the sets to which Get's numbers refer.
func (t *Table) Sets() *holderset.Sets { return &t.sets }

// Slots returns the slots of the holders with entries.
func (t *Table) Slots() *holderset.Slots { return &t.slots }

// Set makes a holder's entries of keys last until a deadline. Entries that last
// longer stay as they are.
func (t *Table) Set(holder int32, keys []prefixhash.Key, until int64) {
	t.change(func() { t.set(holder, keys, until) })
}

// End ends a holder's entries of keys.
func (t *Table) End(holder int32, keys []prefixhash.Key) {
	t.change(func() {
		if slot, ok := t.slots.Of(holder); ok {
			t.endAll(hashed(keys), slot, nil)
		}
	})
}

// Kill hides a holder's entries; they end by their deadlines.
func (t *Table) Kill(holder int32) {
	t.change(func() {
		if slot, ok := t.slots.Of(holder); ok {
			t.slots.Kill(slot)
			t.freeIdle(slot)
		}
	})
}

// Expire ends the entries that are due.
func (t *Table) Expire(now int64) {
	if next := t.Next(); next != 0 && next <= now {
		t.change(func() {})
	}
}

// change ends what is due, changes the entries, and publishes the next deadline.
func (t *Table) change(how func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.rows.Settle(t.s.Clock.Oldest())
	for now := t.s.Now().UnixNano(); len(t.heap) > 0 && t.heap[0].until <= now; {
		t.endFirst()
	}
	how()
	if t.emptied { // the emptied rows may be reused after the lookups that run now
		t.s.Clock.Retire()
		t.emptied = false
	}
	if len(t.heap) == 0 {
		t.next.Store(0)
	} else if was := t.next.Swap(t.heap[0].until); was == 0 || was > t.heap[0].until {
		t.s.Wake()
	}
}

// Close ends all entries; later operations do nothing.
func (t *Table) Close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.s.held.Add(-t.held.Swap(0))
	t.heap, t.leases, t.owners = nil, nil, nil
	t.next.Store(0)
	t.rows.Discard()
}
