package index

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// places finds blocks by their keys: fingerprints in buckets like a lane's, so
// that few lines of the cache hold them all. One writer at a time; readers need no
// lock. An entry is in its bucket before its tag, and changes its bucket only with
// the whole array, which is freed when no lookup can see it.
type places struct {
	epochs *epochs
	seed   uint64 // secret of the index, so that keys cannot be made to collide
	array  atomic.Pointer[placeArray]
	used   int
}

type placeArray struct {
	buckets []laneBucket // a power of two of them
	words   []uint64     // their memory
}

func (a *placeArray) home(print uint64) int {
	return int(print * uint64(len(a.buckets)) >> printBits)
}

// touch starts loading what a key needs.
func (p *places) touch(key uint64) uint64 {
	a := p.array.Load()
	if a == nil {
		return 0
	}
	return atomic.LoadUint64(&a.buckets[a.home((key^p.seed)*golden>>posBits)].tags)
}

// likely is the place of a key, 0 when absent: once in some billions it is
// another key's. Any goroutine that has entered an epoch may call it.
func (p *places) likely(key uint64) pos { return p.find(nil, key) }

// find is the place of a key in the stems, 0 when absent, for whoever may call
// likely.
func (p *places) find(s *stems, key uint64) pos {
	a := p.array.Load()
	if a == nil {
		return 0
	}
	n := nameOf(key ^ p.seed)
	home := a.home(n.print)
	for i := home; ; {
		b := &a.buckets[i]
		tags := atomic.LoadUint64(&b.tags)
		for t := tagged(tags, n.tag); t != 0; t &= t - 1 {
			k := bits.TrailingZeros64(t) >> 3
			e := atomic.LoadUint64(&b.entries[k])
			if at := pos(e & posMask); e>>posBits == n.print && tags>>(k*8)&0xff == n.tag && (s == nil || s.has(at, key)) {
				return at
			}
		}
		if i++; i == len(a.buckets) {
			i = 0
		}
		if tags < onePassed || i == home { // or counts that stay say no more
			return 0
		}
	}
}

// put adds a key that is absent. Writer only.
func (p *places) put(key uint64, at pos) {
	a := p.array.Load()
	if a == nil || (p.used+1)*100 > len(a.buckets)*laneWidth*laneFull {
		a = p.resize(max(1, p.buckets()*2))
	}
	a.insert(nameOf(key^p.seed), at)
	p.used++
}

func (a *placeArray) insert(n laneName, at pos) {
	i := a.home(n.print)
	b := &a.buckets[i]
	for b.tags&everyHigh == everyHigh {
		if b.tags>>56 < passMost {
			atomic.StoreUint64(&b.tags, b.tags+onePassed)
		}
		if i++; i == len(a.buckets) {
			i = 0
		}
		b = &a.buckets[i]
	}
	k := bits.TrailingZeros64(^b.tags&everyHigh) >> 3
	atomic.StoreUint64(&b.entries[k], n.print<<posBits|uint64(at))
	atomic.StoreUint64(&b.tags, b.tags|n.tag<<(k*8))
}

// del takes a key's place out, if it is there. Writer only.
func (p *places) del(key uint64, at pos) {
	a := p.array.Load()
	if a == nil {
		return
	}
	n := nameOf(key ^ p.seed)
	home := a.home(n.print)
	for i := home; ; {
		b := &a.buckets[i]
		for t := tagged(b.tags, n.tag); t != 0; t &= t - 1 {
			k := bits.TrailingZeros64(t) >> 3
			if b.entries[k] != n.print<<posBits|uint64(at) || b.tags>>(k*8)&0xff != n.tag {
				continue
			}
			atomic.StoreUint64(&b.tags, b.tags&^(0xff<<(k*8)))
			p.used--
			a.unpass(home, i)
			return
		}
		if i++; i == len(a.buckets) {
			i = 0
		}
		if b.tags < onePassed || i == home {
			return
		}
	}
}

// unpass takes back that an entry passed the buckets from its home on.
func (a *placeArray) unpass(home, bucket int) {
	for i := home; i != bucket; {
		if b := &a.buckets[i]; b.tags>>56 < passMost {
			atomic.StoreUint64(&b.tags, b.tags-onePassed)
		}
		if i++; i == len(a.buckets) {
			i = 0
		}
	}
}

func (p *places) buckets() int {
	if a := p.array.Load(); a != nil {
		return len(a.buckets)
	}
	return 0
}

// each calls f for every entry's place. Writer only.
func (p *places) each(f func(pos)) {
	if a := p.array.Load(); a != nil {
		eachPos(a.buckets, f)
	}
}

// resize replaces the array.
func (p *places) resize(buckets int) *placeArray {
	words := p.epochs.pool.words(buckets * int(unsafe.Sizeof(laneBucket{})) / 8)
	clear(words)
	a := &placeArray{unsafe.Slice((*laneBucket)(unsafe.Pointer(&words[0])), buckets), words}
	old := p.array.Load()
	if old != nil {
		for i := range old.buckets {
			old.buckets[i].each(a.insert)
		}
	}
	p.array.Store(a)
	if old != nil {
		p.epochs.discard(memory{words: old.words})
	}
	return a
}

// tidy gives memory back.
func (p *places) tidy() {
	n := p.buckets()
	for n > 1 && p.used*100 <= n/2*laneWidth*laneFull {
		n /= 2
	}
	if n < p.buckets() {
		p.resize(n)
	}
}

// discard frees everything; nobody may reach the places any more.
func (p *places) discard() {
	if a := p.array.Swap(nil); a != nil {
		p.epochs.discard(memory{words: a.words})
	}
}

func (p *places) bytes() int { return p.buckets() * int(unsafe.Sizeof(laneBucket{})) }
