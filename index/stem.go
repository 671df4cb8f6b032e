package index

import (
	"sync/atomic"
	"unsafe"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/index/internal/offheap"
	"warmroute/prefixhash"
)

// maxStem bounds the blocks of a stem: an offset has 16 bits in a pos, and an
// array that is copied to grow stays within 128 KiB.
const maxStem = 1 << 14

// pos is a block's place: stem number and offset. 0 is none.
type pos uint64

func posAt(id uint32, off int) pos { return pos(id)<<16 | pos(off) }

func (p pos) stem() uint32 { return uint32(p >> 16) }
func (p pos) off() int     { return int(p & 0xffff) }

// stem is a stretch of a chain of blocks: their keys in one array, and who holds
// how much of it. The blocks that follow one of them, other than the next in the
// array, begin stems of their own.
//
// Readers load state, then keys and levels, then state again: as long as its
// version is the same, nothing they saw was given to other blocks. Keys that a
// reader may have seen are never overwritten, but replaced with their array.
type stem struct {
	state  atomic.Uint64
	keys   atomic.Pointer[uint64] // the first of room keys
	levels atomic.Pointer[uint64] // see level; read when state says so

	// The writer's.
	parent     pos    // the block before the first, 0 = the first begins prompts; readers too
	depth      uint32 // blocks before the first; readers too
	child      uint32 // one of the stems behind blocks of this one
	next, prev uint32 // among the stems behind the parent's blocks
	space      uint16
	tick       uint16 // of the last store, in minutes
	room       uint16 // of keys; never less than it was, so that no reader's state has more blocks
	seen       uint16 // of keys, those that readers may have seen
	deep       int16  // no stem follows a block behind this offset, -1 = none follows any
	plain      bool   // the blocks' names are their keys; else the names are behind the room for keys
	stale      bool   // blocks were taken off the end since levels were written: readers may take them for those of what was there

	_ [4]byte // to a cache line
}

// defaultMarkEvery is how far apart marked blocks are: a lookup jumps to the last
// one that is there, and reads on from it; one in so many blocks costs storing
// little, and few lines of the cache hold them all.
const defaultMarkEvery = 128

// marks calls f for the offsets from … to - 1 of a stem that are marked, one in
// every.
func (st *stem) marks(every, from, to int, f func(off int)) {
	first := every - 1 - (int(st.depth)+from)%every
	for off := from + first; off < to; off += every {
		f(off)
	}
}

// A state holds the number of blocks, and either the set that holds all of them
// or stateLevels. Its version counts the times that blocks were taken off the end.
const (
	stateSetShift     = 16
	stateLevels       = 1 << 40
	stateVersionShift = 41
)

func stateBlocks(s uint64) int       { return int(s & 0xffff) }
func stateSet(s uint64) holderset.ID { return holderset.ID(s >> stateSetShift & holderset.MaxID) }
func sameLife(a, b uint64) bool {
	return a>>stateVersionShift == b>>stateVersionShift
}

// array is the first n keys, or all there is room for.
func (st *stem) array(n int) []uint64 { return unsafe.Slice(st.keys.Load(), n) }

// all is the keys of the blocks. Writer only.
func (st *stem) all() []uint64 { return st.array(st.blocks()) }

// blocks and key are for the writer.
func (st *stem) blocks() int { return stateBlocks(st.state.Load()) }

// wide is how many words a block takes. Writer only.
func (st *stem) wide() int {
	if st.plain {
		return 1
	}
	return 2
}

// names is what those who stored the first n blocks first called them. Writer only.
func (st *stem) names(n int) []uint64 {
	if st.plain {
		return st.array(n)
	}
	return unsafe.Slice((*uint64)(unsafe.Add(unsafe.Pointer(st.keys.Load()), 8*int(st.room))), n)
}

func (st *stem) name(off int) uint64 { return st.names(off + 1)[off] }

func (st *stem) key(off int) uint64 { return st.array(off + 1)[off] }

// keysBefore is how many keys of two chains are equal from their start. Keys are
// chained: where two are equal, so are all before them.
func keysBefore(have []uint64, want []prefixhash.Key) int {
	n := min(len(have), len(want))
	if n == 0 {
		return 0
	}
	have, want = have[:n], want[:n]
	if have[n-1] == uint64(want[n-1]) {
		return n
	}
	lo, hi := -1, n-1 // equal up to lo, different from hi on
	for hi-lo > fan {
		d, equal := hi-lo, 0
		for i := 1; i < fan; i++ { // without a branch on what is found: the loads overlap
			p := lo + d*i/fan
			if have[p] == uint64(want[p]) {
				equal++
			}
		}
		lo, hi = lo+d*equal/fan, lo+d*(equal+1)/fan
	}
	for lo+1 < hi && have[lo+1] == uint64(want[lo+1]) {
		lo++
	}
	return lo + 1
}

// fan is how many parts a search is split in at a time.
const fan = 16

const stemsPerPage = 64

type stemPage [stemsPerPage]stem

// stems are a domain's, by number from 1. One writer at a time; a number is
// given again only when no lookup can know it any more.
type stems struct {
	pages  atomic.Pointer[[]*stemPage]
	made   uint32
	free   []uint32
	rests  epoch.Limbo[resting]
	enough int // rests to be looked through
	arrays arrays
}

// resting is what lookups may still be reading: a stem, or an array that one has
// outgrown.
type resting struct {
	id    uint32 // 0: an array
	words int
	array *uint64
}

func (s *stems) init(x *Index) {
	s.arrays.pool = &x.pool
	s.rests.Init(&x.clock)
	s.pages.Store(&[]*stemPage{})
}

func (s *stems) at(id uint32) *stem {
	return &(*s.pages.Load())[id/stemsPerPage][id%stemsPerPage]
}

// has says whether a stem has a key at a place.
func (s *stems) has(at pos, key uint64) bool {
	st := s.at(at.stem())
	return stateBlocks(st.state.Load()) > at.off() && st.key(at.off()) == key
}

// find is the place of a key, 0 when absent. For lookups.
func (s *stems) find(x *hashtable.SharedIndex, key uint64) pos {
	v := x.View()
	at, p := v.Next(key, hashtable.Position{})
	for p != 0 && !s.has(pos(p), key) {
		at, p = v.Next(key, at)
	}
	return pos(p)
}

// take returns an unused stem, false when there are as many as a table's val can
// name.
func (s *stems) take() (id uint32, st *stem, ok bool) {
	if s.rests.Len() >= s.enough {
		s.rests.Reclaim(s.wakeUp)
		s.enough = s.rests.Len() + stemsPerPage
	}
	if n := len(s.free); n > 0 {
		id = s.free[n-1]
		s.free = s.free[:n-1]
		return id, s.at(id), true
	}
	if s.made == 1<<24-1 {
		return 0, nil, false
	}
	s.made++
	if id = s.made; int(id/stemsPerPage) == len(*s.pages.Load()) {
		pages := append(*s.pages.Load(), new(stemPage)) // readers hold the shorter slice
		s.pages.Store(&pages)
	}
	return id, s.at(id), true
}

// rest puts a stem without blocks aside until no lookup can be reading it.
func (s *stems) rest(id uint32) {
	s.rests.Put(resting{id: id})
}

// outgrown puts an array aside.
func (s *stems) outgrown(p *uint64, words int) {
	if p != nil {
		s.rests.Put(resting{array: p, words: words})
	}
}

func (s *stems) wakeUp(r resting) {
	if r.id == 0 {
		s.arrays.put(r.array, r.words)
		return
	}
	st := s.at(r.id)
	s.arrays.put(st.keys.Swap(nil), st.wide()*int(st.room))
	st.levels.Store(nil)
	st.room = 0
	s.free = append(s.free, r.id)
}

// tidy gives up the arrays that are kept.
func (s *stems) tidy() {
	s.rests.Reclaim(s.wakeUp)
	s.arrays.tidy()
}

// each calls f for every stem that has blocks.
func (s *stems) each(f func(id uint32, st *stem)) {
	for id := uint32(1); id <= s.made; id++ {
		if st := s.at(id); st.blocks() > 0 {
			f(id, st)
		}
	}
}

// bytes is the memory of the stems and their arrays.
func (s *stems) bytes() (n int) {
	n = len(*s.pages.Load()) * int(unsafe.Sizeof(stemPage{}))
	for id := uint32(1); id <= s.made; id++ {
		st := s.at(id)
		n += 8 * st.wide() * int(st.room)
		for range st.words() {
			n += 8
		}
	}
	return n + 8*s.arrays.words
}

// arrays are the memory of stems' keys and names. What stems have left is used
// again: churn is not the collector's work then.
type arrays struct {
	pool  *offheap.Pool
	free  [maxClass][]*uint64 // small ones, by class
	words int                 // in free
}

// maxClass is the first class that the pool has itself, of 4 KiB: smaller arrays
// are the Go heap's. maxSpareWords bounds what is kept of those: 8 MiB.
const (
	maxClass      = 12
	maxSpareWords = 1 << 20
)

// arraySize is the smallest array of at least n words, and its class: small ones
// have sizes the Go heap has too, in steps of a half and a third, others are
// powers of two.
func arraySize(n int) (words, class int) {
	for words = 8; words < n; class++ {
		switch {
		case class >= maxClass:
			words *= 2
		case words&(words-1) == 0:
			words += words / 2
		default:
			words += words / 3
		}
	}
	return words, class
}

// take returns an array of at least n words.
func (a *arrays) take(n int) (p *uint64, words int) {
	words, class := arraySize(n)
	if class >= maxClass {
		return &a.pool.Words(words)[0], words
	}
	if list := a.free[class]; len(list) > 0 {
		p = list[len(list)-1]
		a.free[class] = list[:len(list)-1]
		a.words -= words
		return p, words
	}
	return unsafe.SliceData(make([]uint64, words)), words
}

// put keeps an array that nobody reads.
func (a *arrays) put(p *uint64, words int) {
	_, class := arraySize(words)
	switch {
	case p == nil:
	case class >= maxClass:
		a.pool.Free(unsafe.Slice(p, words))
	case a.words+words <= maxSpareWords:
		a.free[class] = append(a.free[class], p)
		a.words += words
	}
}

// tidy gives up what is kept.
func (a *arrays) tidy() { *a = arrays{pool: a.pool} }
