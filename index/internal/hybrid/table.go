package hybrid

import (
	"sync/atomic"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/index/internal/offheap"
)

// Memory is what the tables of an index share.
type Memory struct {
	Clock *epoch.Clock // of the lookups
	Pool  *offheap.Pool
	Seed  uint64
}

// table maps blocks (Plan.rowOf) to the seats of the members that hold them. It has one
// writer at a time; lookups, which have entered an epoch, take no lock.
type table struct {
	rows atomic.Pointer[hashtable.Table] // nil: closed
	sets *holderset.Sets
}

func (t *table) init(m Memory, sets *holderset.Sets) {
	t.sets = sets
	t.rows.Store(hashtable.NewTable(m.Pool, m.Seed))
}

// probe reports whether the member in a seat holds a block, and leaves in agree the seats, as
// bits, of which the same is true.
func (t *table) probe(key uint64, seat int, agree []uint64) bool {
	set := holderset.ID(0)
	if rows := t.rows.Load(); rows != nil {
		set = rows.Get(key)
	}
	return t.sets.Agree(set, seat, agree)
}

// flip adds a seat to a block's set, or removes it. When no more sets can be made, the block
// loses all its holders, and lookups credit less than the holders hit.
func (t *table) flip(key uint64, seat int, on bool) {
	rows := t.rows.Load()
	if rows == nil {
		return
	}
	row := rows.Insert(key)
	was := row.Set()
	if t.sets.Has(was, seat) == on {
		return
	}
	to, ok := t.sets.Toggle(was, seat)
	if !ok {
		to = 0
	}
	rows.Set(row, to)
	t.sets.Release(was)
}

// close makes the table empty for good, and frees it.
func (t *table) close() {
	if rows := t.rows.Swap(nil); rows != nil {
		rows.Discard()
	}
}
