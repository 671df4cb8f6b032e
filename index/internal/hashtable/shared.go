package hashtable

import (
	"sync/atomic"

	"warmroute/index/internal/offheap"
)

// SharedIndex is an Index that lookups read without a lock. An entry changes its
// bucket only with the whole array. Init it first.
type SharedIndex struct {
	pool *offheap.Pool
	view atomic.Pointer[View]
	used int
}

// View is what a SharedIndex has in its array at one time.
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

// View returns the array of now. For lookups.
func (x *SharedIndex) View() *View { return x.view.Load() }

func (v *View) hash(key uint64) uint64 { return (key ^ v.seed) * Golden }

// Touch starts loading what a key needs.
func (v *View) Touch(key uint64) uint64 {
	if len(v.buckets) == 0 {
		return 0
	}
	return v.buckets.touch(v.hash(key))
}

// Next continues a search for a key, to the next place where it may be: 0 means
// that it is absent. Once in some billions a place is another key's.
func (v *View) Next(key uint64, at Position) (Position, uint64) {
	return v.buckets.next(v.hash(key), at)
}

// Put adds a key that is absent. Writer only, as all that follow are.
func (x *SharedIndex) Put(key, place uint64) {
	v := x.View()
	if n := v.buckets.enough(x.used + 1); n > len(v.buckets) {
		v = x.resize(n)
	}
	v.buckets.insert(v.hash(key), place, true)
	x.used++
}

// Delete removes the entry of a key at a place, if there is one.
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

// Len is how many entries there are.
func (x *SharedIndex) Len() int { return x.used }

// Each calls f for every entry's place.
func (x *SharedIndex) Each(f func(place uint64)) {
	x.View().buckets.each(func(_, place uint64) { f(place) })
}

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

// Trim gives memory back.
func (x *SharedIndex) Trim() {
	if b := x.View().buckets; b.fewest(x.used) < len(b) {
		x.resize(b.fewest(x.used))
	}
}

// Discard frees everything; the index must not be used any more.
func (x *SharedIndex) Discard() { x.replace(&View{}) }

// Bytes is the memory of the entries.
func (x *SharedIndex) Bytes() int { return x.View().buckets.bytes() }
