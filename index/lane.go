package index

import (
	"math/bits"
	"unsafe"
)

// lane finds a holder's blocks by what the holder calls them: a name is an
// engine's 64-bit hash. The writer's alone.
//
// A lane keeps no name, only a fingerprint and the block's place; the name is
// the stem's there. So an entry takes a third of what a map takes, and mostly one
// cache line is touched to add, find or remove one, and none to see that a name is
// absent. Entries live in buckets of a line. A name has a home bucket, and goes to
// the next one with room when that is full; every bucket counts the entries that
// passed it, so that a search ends at one nobody passed, and nothing moves when an
// entry goes.
type lane struct {
	pool    *pool
	buckets []laneBucket // a power of two of them
	words   []uint64     // their memory
	used    int
}

// laneBucket has in tags a byte for each entry, 0 or 0x80 and seven bits of the
// name's hash, and in the highest byte how many passed. An entry is a pos in the
// low posBits and the rest of the fingerprint above.
type laneBucket struct {
	tags    uint64
	entries [laneWidth]uint64
}

const (
	laneWidth = 7
	posBits   = 40
	posMask   = 1<<posBits - 1
	everyTag  = 0x0001010101010101
	everyHigh = 0x0080808080808080
	onePassed = 1 << 56
	passMost  = 0xff // a count that stays: nobody knows any more how many passed
)

// laneFull is how full a lane may be, in percent: it is doubled then, and halved by
// a sweep that finds half enough. Longer searches cost more than memory.
const laneFull = 64

// laneName is what a lane knows of a name.
type laneName struct {
	print uint64 // printBits of its hash, which choose the bucket
	tag   uint64 // seven more, with the high bit set
}

const printBits = 64 - posBits

func nameOf(name uint64) laneName {
	m := name * golden
	return laneName{m >> posBits, m>>(posBits-7)&0x7f | 0x80}
}

// home is the bucket of a fingerprint; there are never as many as fingerprints.
func (l *lane) home(print uint64) int { return int(print * uint64(len(l.buckets)) >> printBits) }

// touch starts loading what a name needs.
func (l *lane) touch(name uint64) uint64 {
	if len(l.buckets) == 0 {
		return 0
	}
	return l.buckets[l.home(name*golden>>posBits)].tags
}

// tagged has the high bit of each byte that may be tag: of all that are, and
// seldom of one that differs in its last bit.
func tagged(tags, tag uint64) uint64 {
	x := tags ^ tag*everyTag
	return (x - everyTag) &^ x & everyHigh
}

// find is the place of a name among the stems' names, none when absent.
func (l *lane) find(s *stems, name uint64) (at laneAt, p pos) {
	if len(l.buckets) == 0 {
		return laneAt{}, 0
	}
	return l.search(s, name, nameOf(name))
}

// laneAt is the place of an entry, void when the lane changes.
type laneAt struct{ home, bucket, k int }

func (l *lane) search(s *stems, name uint64, n laneName) (laneAt, pos) {
	home := l.home(n.print)
	for i := home; ; {
		b := &l.buckets[i]
		for t := tagged(b.tags, n.tag); t != 0; t &= t - 1 {
			k := bits.TrailingZeros64(t) >> 3
			e := b.entries[k]
			if p := pos(e & posMask); e>>posBits == n.print && b.tags>>(k*8)&0xff == n.tag && s.at(p.stem()).name(p.off()) == name {
				return laneAt{home, i, k}, p
			}
		}
		if b.tags < onePassed {
			return laneAt{}, 0
		}
		if i++; i == len(l.buckets) {
			i = 0
		}
		if i == home { // no bucket's count tells any more that nobody passed
			return laneAt{}, 0
		}
	}
}

// room makes room for n more entries.
func (l *lane) room(n int) {
	buckets := max(1, len(l.buckets))
	for (l.used+n)*100 > buckets*laneWidth*laneFull {
		buckets *= 2
	}
	if buckets > len(l.buckets) {
		l.resize(buckets)
	}
}

// put gives a name a place, and returns the place a known one has instead, else
// 0. There is room. The name need not be the stem's yet.
func (l *lane) put(s *stems, name uint64, p pos) (was pos) {
	n := nameOf(name)
	b := &l.buckets[l.home(n.print)]
	if tagged(b.tags, n.tag) != 0 || b.tags >= onePassed {
		if _, was := l.search(s, name, n); was != 0 {
			return was
		}
	}
	l.insert(n, p)
	return 0
}

// insert adds an entry.
func (l *lane) insert(n laneName, p pos) {
	i := l.home(n.print)
	b := &l.buckets[i]
	for b.tags&everyHigh == everyHigh {
		if b.tags>>56 < passMost {
			b.tags += onePassed
		}
		if i++; i == len(l.buckets) {
			i = 0
		}
		b = &l.buckets[i]
	}
	k := bits.TrailingZeros64(^b.tags&everyHigh) >> 3
	b.tags |= n.tag << (k * 8)
	b.entries[k] = n.print<<posBits | uint64(p)
	l.used++
}

// del takes an entry out.
func (l *lane) del(at laneAt) {
	for i := at.home; i != at.bucket; {
		if b := &l.buckets[i]; b.tags>>56 < passMost {
			b.tags -= onePassed
		}
		if i++; i == len(l.buckets) {
			i = 0
		}
	}
	l.buckets[at.bucket].tags &^= 0xff << (at.k * 8)
	l.used--
}

// each calls f for what is known of every entry.
func (b *laneBucket) each(f func(n laneName, p pos)) {
	for w := b.tags & everyHigh; w != 0; w &= w - 1 {
		k := bits.TrailingZeros64(w) >> 3
		f(laneName{b.entries[k] >> posBits, b.tags >> (k * 8) & 0xff}, pos(b.entries[k]&posMask))
	}
}

// eachPos calls f for the entries of some buckets.
func eachPos(buckets []laneBucket, f func(p pos)) {
	for i := range buckets {
		for w := buckets[i].tags & everyHigh; w != 0; w &= w - 1 {
			f(pos(buckets[i].entries[bits.TrailingZeros64(w)>>3] & posMask))
		}
	}
}

// resize gives the lane so many buckets.
func (l *lane) resize(buckets int) {
	old := *l
	l.words = l.pool.words(buckets * int(unsafe.Sizeof(laneBucket{})) / 8)
	clear(l.words)
	l.buckets, l.used = unsafe.Slice((*laneBucket)(unsafe.Pointer(&l.words[0])), buckets), 0
	for i := range old.buckets {
		old.buckets[i].each(l.insert)
	}
	old.discard() // nobody else reads it
}

// tidy gives memory back.
func (l *lane) tidy() {
	n := len(l.buckets)
	for n > 1 && l.used*100 <= n/2*laneWidth*laneFull {
		n /= 2
	}
	if n < len(l.buckets) {
		l.resize(n)
	}
}

func (l *lane) discard() {
	if l.words != nil {
		l.pool.release(l.words)
	}
	*l = lane{pool: l.pool}
}

func (l *lane) bytes() int { return len(l.buckets) * int(unsafe.Sizeof(laneBucket{})) }
