package hashtable

import "warmroute/index/internal/offheap"

// Index leads from keys to places, 64 bytes for every 7 entries. It is its
// writer's alone. Init comes first.
type Index struct {
	pool    *offheap.Pool
	buckets buckets
	words   []uint64 // their memory
	used    int
}

// Init makes an empty index.
func (x *Index) Init(p *offheap.Pool) { *x = Index{pool: p} }

// Touch starts loading the bucket of a key.
func (x *Index) Touch(key uint64) uint64 { return x.buckets.touch(key * Golden) }

// Next continues a search for a key, to the next place that may have it; 0 means
// that the key is absent.
func (x *Index) Next(key uint64, at Position) (Position, uint64) {
	return x.buckets.next(key*Golden, at)
}

// Lacks reports whether a key is surely absent. The index must have buckets.
func (x *Index) Lacks(key uint64) bool {
	f := fingerprintOf(key * Golden)
	tags := x.buckets[x.buckets.home(f.print)].tags
	return tagged(tags, f.tag) == 0 && tags < onePassed
}

// Reserve makes room for n more entries.
func (x *Index) Reserve(n int) {
	if n := x.buckets.enough(x.used + n); n > len(x.buckets) {
		x.resize(n)
	}
}

// Put gives an absent key a place. The index must have room.
func (x *Index) Put(key, place uint64) {
	x.buckets.insert(key*Golden, place, false)
	x.used++
}

// Delete removes a key's entry at the position of a search for it.
func (x *Index) Delete(key uint64, at Position) {
	x.buckets.remove(key*Golden, at, false)
	x.used--
}

// Len returns the number of entries.
func (x *Index) Len() int { return x.used }

// Each calls f for every entry's place.
func (x *Index) Each(f func(place uint64)) {
	x.buckets.each(func(_, place uint64) { f(place) })
}

func (x *Index) resize(n int) {
	old, words := x.buckets, x.words
	x.words, x.buckets = newBuckets(x.pool, n)
	old.each(func(hash, place uint64) { x.buckets.insert(hash, place, false) })
	if words != nil {
		x.pool.Free(words) // no other goroutine reads it
	}
}

// Trim returns unused memory.
func (x *Index) Trim() {
	if n := x.buckets.fewest(x.used); n < len(x.buckets) {
		x.resize(n)
	}
}

// Discard empties the index and frees its memory.
func (x *Index) Discard() {
	if x.words != nil {
		x.pool.Free(x.words)
	}
	x.Init(x.pool)
}

// Bytes returns the memory of the entries.
func (x *Index) Bytes() int { return x.buckets.bytes() }
