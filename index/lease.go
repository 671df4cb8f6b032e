package index

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/prefixhash"
)

// leaseKind is what an entry with a deadline is evidence of.
type leaseKind int

const (
	leaseReported    leaseKind = iota // by a reporter that sends no removals
	leaseSpeculative                  // a request was just sent there

	leaseKinds
)

// leases are one scope's entries of one kind that end by themselves. They need
// no order along a chain. Each entry lasts by the claim with the latest deadline,
// whose number is in the slot, in child's place, or in owners where a key has
// several holders. A claim keeps its keys for as long as one lasts by it, so
// nothing is scanned to expire them.
//
// Nobody waits for the lock on the request path or at ingest: operations are
// pushed on a stack, and whoever gets the lock does all that are there.
type leases struct {
	x   *Index
	ops atomic.Pointer[leaseOp]

	mu      sync.Mutex
	closed  bool
	slots   holderset.Slots
	sets    holderset.Sets
	table   *hashtable.Table
	owners  hashtable.Pairs // of keys with two and more holders
	emptied bool            // slots, in this drain
	claims  claimHeap
	numbers []*leaseOp   // claims by number - 1
	free    []uint64     // numbers of none
	pending []int        // by slot: claims in the heap
	next    atomic.Int64 // earliest deadline, 0 = none

	held atomic.Int64 // entries
}

// leaseOp is a claim (until > 0) or a withdrawal of keys.
type leaseOp struct {
	next  *leaseOp
	id    HolderID
	slot  int
	keys  []uint64
	until int64

	number uint64 // of a claim, above 0
	left   int    // entries that last by it
	place  int    // in the heap
}

var leaseOps = sync.Pool{New: func() any { return new(leaseOp) }}

func newLeases(x *Index) *leases {
	l := &leases{x: x, table: hashtable.NewTable(&x.clock, &x.pool, x.seed)}
	l.owners.Init(&x.pool, x.seed)
	l.table.Churns = true
	l.slots.Init(&x.clock)
	l.sets.Init(&x.clock)
	return l
}

// Speculate notes that h will soon hold keys, because a request was sent there:
// until the deadline they count as Blocks, not as Reported. What h reports
// about a key, stored or removed, replaces it. Keys that h already reports need
// not be given but may be. It waits for no lock that ingest holds. Like all
// deadlines here, this one may come up to 17 ms late for lookups.
func (x *Index) Speculate(s Scope, h HolderID, keys []prefixhash.Key, until time.Time) {
	x.lease(leaseSpeculative, s, h, keys, until.UnixNano())
}

// Withdraw ends what was speculated about h and keys, by however many requests.
func (x *Index) Withdraw(s Scope, h HolderID, keys []prefixhash.Key) {
	x.lease(leaseSpeculative, s, h, keys, 0)
}

// Report notes that h says it holds keys, and that it may not say when it no
// longer does: they count as Reported until the deadline.
func (x *Index) Report(s Scope, h HolderID, keys []prefixhash.Key, until time.Time) {
	if holder := x.byID(h); holder != nil {
		x.see(h, x.o.Now().UnixNano())
	}
	x.lease(leaseReported, s, h, keys, until.UnixNano())
}

// Retract ends what was given to Report.
func (x *Index) Retract(s Scope, h HolderID, keys []prefixhash.Key) {
	x.lease(leaseReported, s, h, keys, 0)
}

// lease claims or, with until 0, withdraws.
func (x *Index) lease(kind leaseKind, s Scope, id HolderID, keys []prefixhash.Key, until int64) {
	if len(keys) == 0 || s.Scheme == "" || x.closed.Load() || x.byID(id) == nil {
		return
	}
	if kind == leaseSpeculative && x.arrive(&s, id, keys, until) {
		return
	}
	claim := until > 0
	ks := (*x.keyspaces.Load())[s]
	if ks == nil && claim {
		ks = x.keyspace(s)
	}
	if ks == nil {
		return
	}
	l := ks.leases[kind].Load()
	if l == nil {
		if !claim {
			return
		}
		ks.leases[kind].CompareAndSwap(nil, newLeases(x))
		l = ks.leases[kind].Load()
	}
	op := leaseOps.Get().(*leaseOp)
	op.id, op.until, op.keys = id, until, slices.Grow(op.keys[:0], len(keys))
	for _, k := range keys {
		op.keys = append(op.keys, hashtable.KeyOf(uint64(k)))
	}
	l.do(op)
}

// cancel drops speculation about keys that the holder has reported on.
func (ks *keyspace) cancel(id HolderID, keys []uint64) {
	l := ks.leases[leaseSpeculative].Load()
	if l == nil || l.held.Load() == 0 {
		return
	}
	slot, ok := l.slots.Of(int32(id))
	if !ok {
		return
	}
	r := ks.sh.x.clock.Enter()
	var op *leaseOp
	for _, key := range keys {
		if id := l.table.Get(key).Set(); id != 0 && l.sets.Has(id, slot) {
			if op == nil {
				op = leaseOps.Get().(*leaseOp)
				op.keys = op.keys[:0]
			}
			op.keys = append(op.keys, key)
		}
	}
	r.Leave()
	if op != nil {
		op.id, op.until = id, 0
		l.do(op)
	}
}

func (ks *keyspace) cancelOne(id HolderID, key uint64) {
	if ks.leases[leaseSpeculative].Load() != nil {
		ks.cancel(id, []uint64{key})
	}
}

// do has op done, here or by whoever holds the lock.
func (l *leases) do(op *leaseOp) {
	for {
		op.next = l.ops.Load()
		if l.ops.CompareAndSwap(op.next, op) {
			break
		}
	}
	l.drain()
}

func (l *leases) drain() {
	for l.ops.Load() != nil && l.mu.TryLock() {
		l.drainLocked()
		l.mu.Unlock()
	}
}

func (l *leases) drainLocked() {
	l.table.Settle(l.x.clock.Oldest())
	l.expire(l.x.o.Now().UnixNano())
	var first *leaseOp
	for op := l.ops.Swap(nil); op != nil; { // oldest first
		op.next, op, first = first, op.next, op
	}
	for op := first; op != nil; {
		next := op.next
		op.next = nil
		if l.closed || !l.apply(op) {
			leaseOps.Put(op)
		}
		op = next
	}
	if l.emptied { // what was emptied now may be reused after the lookups of now
		l.x.clock.Retire()
		l.emptied = false
	}
	if len(l.claims) > 0 {
		if was := l.next.Swap(l.claims[0].until); was == 0 || was > l.claims[0].until {
			l.x.wake() // Run waits for another time
		}
	} else {
		l.next.Store(0)
	}
}

// apply does one operation and says whether it keeps op.
func (l *leases) apply(op *leaseOp) bool {
	slot, ok := l.slots.Of(int32(op.id))
	if op.until == 0 {
		if ok {
			l.endAll(op.keys, slot, nil)
		}
		return false
	}
	if op.until <= l.x.o.Now().UnixNano() { // over before it was done: lookups would see it until the next tick
		return false
	}
	if !ok {
		if slot, ok = l.join(op.id); !ok {
			return false
		}
	}
	for int(l.x.leased.Load())+len(op.keys) > l.x.o.MaxLeases && len(l.claims) > 0 {
		l.popClaim()
	}
	op.slot, op.left = slot, 0
	l.enter(op)
	f := holderset.Toggler{Sets: &l.sets, Slot: slot}
	before := l.held.Load()
	for i, key := range op.keys {
		if i%ahead == 0 {
			l.table.Touch(op.keys[i:min(i+ahead, len(op.keys))])
		}
		if !l.claim(&f, key, op) {
			break
		}
	}
	f.Flush()
	l.x.leased.Add(l.held.Load() - before)
	if op.left == 0 {
		l.finish(op)
	}
	return true
}

// join gives a holder a slot, and tells it so that its end reaches these leases.
func (l *leases) join(id HolderID) (int, bool) {
	h := l.x.byID(id)
	if h == nil {
		return 0, false
	}
	slot, ok := l.slots.Take(int32(id))
	if !ok {
		return 0, false
	}
	for len(l.pending) <= slot {
		l.pending = append(l.pending, 0)
	}
	h.leaseMu.Lock()
	h.leased = append(h.leased, l)
	h.leaseMu.Unlock()
	return slot, true
}

// expire ends the claims whose deadline has come.
func (l *leases) expire(now int64) {
	for len(l.claims) > 0 && l.claims[0].until <= now {
		l.popClaim()
	}
}

// kill makes a holder's entries invisible; they end by their deadlines.
func (l *leases) kill(id HolderID) {
	l.mu.Lock()
	l.drainLocked()
	if slot, ok := l.slots.Of(int32(id)); ok {
		l.slots.Kill(slot)
		if l.pending[slot] == 0 {
			l.slots.Free([]int{slot})
		}
	}
	l.mu.Unlock()
	l.drain()
}

// tick expires what is due.
func (l *leases) tick(now int64) {
	if next := l.next.Load(); next == 0 || next > now {
		return
	}
	l.mu.Lock()
	l.drainLocked()
	l.mu.Unlock()
	l.drain()
}

func (l *leases) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.x.leased.Add(-l.held.Swap(0))
	l.claims, l.numbers = nil, nil
	l.owners.Discard()
	l.next.Store(0)
	l.table.Discard()
}

// coarse is a deadline in units of about 17 ms since the index was made, rounded
// up, as slots keep it: 32 bits of it are two years.
func (x *Index) coarse(at int64) uint64 {
	return uint64(min(max(0, at-x.start+1<<24-1)>>24, 1<<32-1))
}

// endLeases closes the keyspace's leases when they have no entries and nobody is
// about to add one. Later operations on them do nothing.
func (ks *keyspace) endLeases() bool {
	for i := range ks.leases {
		if l := ks.leases[i].Load(); l != nil && (l.held.Load() > 0 || l.ops.Load() != nil) {
			return false
		}
	}
	return true
}
