package hashtable

import (
	"math/bits"
	"sync/atomic"

	"warmroute/index/internal/offheap"
)

// PlaceBits is the size of the places that an Index leads to.
const PlaceBits = 40

// bucket is a cache line of entries. In tags each entry has a byte, 0 or 0x80 and
// seven bits of the key's hash; the highest byte counts the entries that went past
// the full bucket. An entry is a place in the low PlaceBits and the rest of the
// fingerprint above.
type bucket struct {
	tags    uint64
	entries [bucketWidth]uint64
}

const (
	bucketWidth = 7
	placeMask   = 1<<PlaceBits - 1
	everyTag    = 0x0001010101010101
	everyHigh   = 0x0080808080808080
	onePassed   = 1 << 56
	passedMost  = 0xff // a saturated count: the true one is unknown, so it stays
)

// fullPercent is how full buckets may be. Their number is doubled then, and Trim
// halves it if half are enough. Longer searches cost more than memory.
const fullPercent = 64

// fingerprint is the part of a key's hash that an index keeps.
type fingerprint struct {
	print uint64 // printBits of its hash, which choose the bucket
	tag   uint64 // seven more, with the high bit set
}

const printBits = 64 - PlaceBits

// fingerprintOf returns the fingerprint of a key's hash, the product of the key with
// Golden.
func fingerprintOf(hash uint64) fingerprint {
	return fingerprint{hash >> PlaceBits, hash>>(PlaceBits-7)&0x7f | 0x80}
}

// buckets are a power of two in number. A key has a home bucket; if that is full, the
// key goes to the next bucket with room. Every bucket counts the entries that passed
// it, so a search ends at a bucket that no entry passed, and nothing moves when an
// entry goes. So mostly one cache line is read to add, find or remove an entry.
//
// Readers may search while the writer changes shared buckets: an entry is in its
// bucket before its tag is.
type buckets []bucket

func newBuckets(p *offheap.Pool, n int) ([]uint64, buckets) {
	words := p.Zeroed(offheap.Words[bucket](n))
	return words, offheap.Of[bucket](words)
}

// home returns the bucket of a fingerprint; there are fewer buckets than
// fingerprints.
func (b buckets) home(print uint64) int { return int(print * uint64(len(b)) >> printBits) }

// touch starts loading the home bucket of a hash, if there are any.
func (b buckets) touch(hash uint64) uint64 {
	if len(b) == 0 {
		return 0
	}
	return atomic.LoadUint64(&b[b.home(hash>>PlaceBits)].tags)
}

// tagged returns the high bit of each byte that may equal tag: of every equal byte,
// and seldom of one that differs in its last bit.
func tagged(tags, tag uint64) uint64 {
	x := tags ^ tag*everyTag
	return (x - everyTag) &^ x & everyHigh
}

// Position is the state of a search for a key, void when entries change. The zero value
// is the start.
type Position struct{ passed, entry int } // buckets behind the home, entries of the next one

// next continues a search for a hash, to the next entry with its fingerprint. It
// returns the entry's place, or 0 when there is none. Mostly the first entry is the
// key's.
func (b buckets) next(hash uint64, at Position) (Position, uint64) {
	if len(b) == 0 {
		return at, 0
	}
	f := fingerprintOf(hash)
	i := b.home(f.print) + at.passed
	if i >= len(b) {
		i -= len(b)
	}
	for left := ^uint64(0) << (8 * at.entry); ; left = ^uint64(0) {
		tags := atomic.LoadUint64(&b[i].tags)
		for t := tagged(tags, f.tag) & left; t != 0; t &= t - 1 {
			k := bits.TrailingZeros64(t) >> 3
			e := atomic.LoadUint64(&b[i].entries[k])
			if e>>PlaceBits == f.print && tags>>(k*8)&0xff == f.tag {
				at.entry = k + 1
				return at, e & placeMask
			}
		}
		if i++; i == len(b) {
			i = 0
		}
		if at.passed++; tags < onePassed || at.passed == len(b) { // none passed, or the counts are saturated
			return at, 0
		}
	}
}

// insert adds an entry.
func (b buckets) insert(hash, place uint64, shared bool) {
	f := fingerprintOf(hash)
	i := b.home(f.print)
	at := &b[i]
	for at.tags&everyHigh == everyHigh {
		if at.tags>>56 < passedMost {
			store(&at.tags, at.tags+onePassed, shared)
		}
		if i++; i == len(b) {
			i = 0
		}
		at = &b[i]
	}
	k := bits.TrailingZeros64(^at.tags&everyHigh) >> 3
	store(&at.entries[k], f.print<<PlaceBits|place, shared)
	store(&at.tags, at.tags|f.tag<<(k*8), shared)
}

// remove removes the entry that a search for a hash has found, and no longer counts
// it in the buckets that it passed.
func (b buckets) remove(hash uint64, at Position, shared bool) {
	i := b.home(hash >> PlaceBits)
	for range at.passed {
		if p := &b[i]; p.tags>>56 < passedMost {
			store(&p.tags, p.tags-onePassed, shared)
		}
		if i++; i == len(b) {
			i = 0
		}
	}
	store(&b[i].tags, b[i].tags&^(0xff<<(at.entry*8-8)), shared)
}

// store writes a word atomically if readers share it: an ordinary store is several
// times as fast.
func store(p *uint64, v uint64, shared bool) {
	if shared {
		atomic.StoreUint64(p, v)
	} else {
		*p = v
	}
}

// each calls f for every entry with the known bits of its hash.
func (b buckets) each(f func(hash, place uint64)) {
	for i := range b {
		tags := b[i].tags
		for w := tags & everyHigh; w != 0; w &= w - 1 {
			k := bits.TrailingZeros64(w) >> 3
			e := b[i].entries[k]
			f(e>>PlaceBits<<PlaceBits|tags>>(k*8)&0x7f<<(PlaceBits-7), e&placeMask)
		}
	}
}

// enough returns how many buckets have room for n entries, at least as many as there
// are.
func (b buckets) enough(n int) int {
	buckets := max(1, len(b))
	for n*100 > buckets*bucketWidth*fullPercent {
		buckets *= 2
	}
	return buckets
}

// fewest returns how many buckets have room for n entries, at most as many as there
// are.
func (b buckets) fewest(n int) int {
	buckets := len(b)
	for buckets > 1 && n*100 <= buckets/2*bucketWidth*fullPercent {
		buckets /= 2
	}
	return buckets
}

func (b buckets) bytes() int { return len(b) * 64 }
