package hashtable

import (
	"sync/atomic"

	"warmroute/index/internal/offheap"
)

// SharedIndex is an Index that lookups read without a lock. Only a new array
// moves an entry to another bucket. Init comes first.
type SharedIndex struct {
	pool *offheap.Pool
	view atomic.Pointer[View]
	used int
}

// View is the array of a SharedIndex at one time.
type View struct {
	buckets buckets
	seed    uint64   // a secret, so that keys cannot be made to collide
	words   []uint64 // the memory of the buckets
}

// Init makes an empty index.
func (x *SharedIndex) Init(p *offheap.Pool, seed uint64) {
	x.pool = p
	x.view.Store(&View{seed: seed})
}

// View returns the current array. For lookups.
func (x *SharedIndex) View() *View { return x.view.Load() }

func (v *View) hash(key uint64) uint64 { return (key ^ v.seed) * Golden }

// Touch starts loading the bucket of a key.
func (v *View) Touch(key uint64) uint64 { return v.buckets.touch(v.hash(key)) }

// Next continues a search for a key, to the next place that may have it; 0 means
// that the key is absent. Once in some billions a place is another key's.
func (v *View) Next(key uint64, at Position) (Position, uint64) {
	return v.buckets.next(v.hash(key), at)
}

// Put adds an absent key. Only the writer calls it and all methods below.
func (x *SharedIndex) Put(key, place uint64) {
	v := x.View()
	if n := v.buckets.enough(x.used + 1); n > len(v.buckets) {
		v = x.resize(n)
	}
	v.buckets.insert(v.hash(key), place, true)
	x.used++
}

// Delete removes the entry of a key at a place, if the index has it.
func (x *SharedIndex) Delete(key, place uint64) {
	v := x.View()
	at, found := v.Next(key, Position{})
	for found != 0 && found != place {
		at, found = v.Next(key, at)
	}
	if found != 0 {
		v.buckets.remove(v.hash(key), at, true)
		x.used--
	}
}

// Len returns the number of entries.
func (x *SharedIndex) Len() int { return x.used }

// resize replaces the array.
func (x *SharedIndex) resize(n int) *View {
	old := x.View()
	v := &View{seed: old.seed}
	v.words, v.buckets = newBuckets(x.pool, n)
	old.buckets.each(func(hash, place uint64) { v.buckets.insert(hash, place, true) })
	x.replace(v)
	return v
}

func (x *SharedIndex) replace(v *View) {
	if old := x.view.Swap(v); old.words != nil {
		x.pool.Retire(old.words)
	}
}

// Trim returns unused memory.
func (x *SharedIndex) Trim() {
	if b := x.View().buckets; b.fewest(x.used) < len(b) {
		x.resize(b.fewest(x.used))
	}
}

// Discard frees everything. The index must not be used afterwards.
func (x *SharedIndex) Discard() { x.replace(&View{}) }

// Bytes returns the memory of the entries.
func (x *SharedIndex) Bytes() int { return x.View().buckets.bytes() }
