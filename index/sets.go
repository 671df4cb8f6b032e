package index

import (
	"math/bits"
	"sync/atomic"
)

// setID names an immutable set of seats. 0 is the empty set, 1 … MaxHolders are
// the sets of one seat (seat + 1, nothing stored), the others are interned.
type setID = uint32

const (
	firstSet    = MaxHolders + 1
	maxSets     = valSet - firstSet
	setsPerPage = 256
	setWidths   = 9 // 1, 2, 4, … 256 words: a set has room for its highest seat, rounded up
)

// sets interns sets of seats: equal sets have equal ids while they are used, so
// that lookups compare ids. One writer at a time; readers inside an epoch need
// no lock: an id is reused only after the lookups that could know it have ended.
type sets struct {
	epochs *epochs
	pages  atomic.Pointer[[]*setPage] // by (id - firstSet) / setsPerPage

	of      []setInfo        // by id - firstSet
	byPrint map[uint64]setID // fingerprint → id
	free    [setWidths][]setID
	quaran  []quarantined
	frozen  bool // ids are not reused: a sweep remembers some
}

type setPage struct {
	width int
	words []uint64 // setsPerPage × width; no pointers, so the collector passes over it
}

type setInfo struct {
	print uint64 // xor of the seats' random words
	refs  uint32 // slots that hold the id, and pins
	size  uint16 // seats
	width uint8  // log2 of words
}

type quarantined struct {
	tag uint64
	id  setID
}

func (s *sets) init(e *epochs) {
	s.epochs = e
	s.byPrint = map[uint64]setID{}
	s.pages.Store(&[]*setPage{})
}

// zobrist is the random word of a seat (splitmix64 of its number): a set's
// fingerprint is the xor over its seats, so adding or removing one is one xor.
func zobrist(seat int) uint64 {
	z := uint64(seat+1) * golden
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// words returns the bits of an interned id (≥ firstSet). Load them atomically.
func (s *sets) words(id setID) []uint64 {
	k := int(id - firstSet)
	p := (*s.pages.Load())[k/setsPerPage]
	o := k % setsPerPage * p.width
	return p.words[o : o+p.width]
}

func (s *sets) has(id setID, seat int) bool {
	if id < firstSet {
		return int(id) == seat+1
	}
	w := s.words(id)
	return seat>>6 < len(w) && atomic.LoadUint64(&w[seat>>6])>>(seat&63)&1 != 0
}

// word is the seats i<<6 … i<<6+63 of a set, as bits.
func (s *sets) word(id setID, i int) uint64 {
	if id < firstSet {
		if seat := int(id) - 1; seat >= 0 && seat>>6 == i {
			return 1 << (seat & 63)
		}
		return 0
	}
	if w := s.words(id); i < len(w) {
		return atomic.LoadUint64(&w[i])
	}
	return 0
}

// size is how many seats a set has. Writer only.
func (s *sets) size(id setID) int {
	switch {
	case id == 0:
		return 0
	case id < firstSet:
		return 1
	}
	return int(s.of[id-firstSet].size)
}

// each calls f for every seat of a set.
func (s *sets) each(id setID, f func(seat int)) {
	switch {
	case id == 0:
	case id < firstSet:
		f(int(id) - 1)
	default:
		for i, w := range s.words(id) {
			for ; w != 0; w &= w - 1 {
				f(i<<6 + bits.TrailingZeros64(w))
			}
		}
	}
}

func (s *sets) print(id setID) uint64 {
	switch {
	case id == 0:
		return 0
	case id < firstSet:
		return zobrist(int(id) - 1)
	}
	return s.of[id-firstSet].print
}

// flip returns the set with one seat added or taken, pinned: unpin it with
// drop(id, 1). ok is false when there are too many different sets.
func (s *sets) flip(id setID, seat int) (to setID, ok bool) {
	if id == 0 {
		return setID(seat + 1), true
	}
	if id < firstSet && int(id) == seat+1 {
		return 0, true
	}
	if id >= firstSet && s.of[id-firstSet].size == 2 && s.has(id, seat) {
		s.each(id, func(other int) {
			if other != seat {
				to = setID(other + 1)
			}
		})
		return to, true
	}
	print := s.print(id) ^ zobrist(seat)
	if to, ok = s.byPrint[print]; ok {
		s.take(to, 1)
		return to, true
	}
	return s.build(id, seat, print)
}

func widthFor(seat int) uint8 { return uint8(bits.Len(uint(seat >> 6))) }

// build stores id with seat flipped.
func (s *sets) build(id setID, seat int, print uint64) (setID, bool) {
	width := widthFor(seat)
	if id < firstSet {
		width = max(width, widthFor(int(id)-1))
	} else {
		width = max(width, s.of[id-firstSet].width)
	}
	to, ok := s.alloc(width)
	if !ok {
		return 0, false
	}
	dst := s.words(to)
	for i := range dst {
		atomic.StoreUint64(&dst[i], 0)
	}
	if id < firstSet {
		other := int(id) - 1
		atomic.StoreUint64(&dst[other>>6], 1<<(other&63))
	} else {
		for i, w := range s.words(id) {
			atomic.StoreUint64(&dst[i], w)
		}
	}
	size := s.size(id) + 1
	if dst[seat>>6]>>(seat&63)&1 != 0 {
		size -= 2
	}
	atomic.StoreUint64(&dst[seat>>6], dst[seat>>6]^1<<(seat&63))
	s.of[to-firstSet] = setInfo{print: print, refs: 1, size: uint16(size), width: width}
	s.byPrint[print] = to
	return to, true
}

// alloc returns an unused id of a width.
func (s *sets) alloc(width uint8) (setID, bool) {
	if len(s.free[width]) == 0 && len(s.quaran) >= setsPerPage && !s.frozen {
		s.release()
	}
	if n := len(s.free[width]); n > 0 {
		id := s.free[width][n-1]
		s.free[width] = s.free[width][:n-1]
		return id, true
	}
	pages := *s.pages.Load()
	if (len(pages)+1)*setsPerPage > maxSets {
		return 0, false
	}
	// Readers hold the shorter slice, whose entries do not change.
	grown := append(pages, &setPage{width: 1 << width, words: make([]uint64, setsPerPage<<width)})
	s.pages.Store(&grown)
	s.of = append(s.of, make([]setInfo, setsPerPage)...)
	base := setID(firstSet + len(pages)*setsPerPage)
	for i := setsPerPage - 1; i > 0; i-- {
		s.of[base-firstSet+setID(i)].width = width
		s.free[width] = append(s.free[width], base+setID(i))
	}
	return base, true
}

// release frees the quarantined ids no lookup can know any more.
func (s *sets) release() {
	low, kept := s.epochs.oldest(), 0
	for _, q := range s.quaran {
		if q.tag > low {
			s.quaran[kept] = q
			kept++
			continue
		}
		w := s.of[q.id-firstSet].width
		s.free[w] = append(s.free[w], q.id)
	}
	s.quaran = s.quaran[:kept]
}

// take counts n more slots that hold id.
func (s *sets) take(id setID, n int) {
	if id >= firstSet {
		s.of[id-firstSet].refs += uint32(n)
	}
}

// drop counts n slots fewer. The id goes to quarantine with its last one.
func (s *sets) drop(id setID, n int) {
	if id < firstSet {
		return
	}
	o := &s.of[id-firstSet]
	if o.refs -= uint32(n); o.refs == 0 {
		delete(s.byPrint, o.print)
		s.quaran = append(s.quaran, quarantined{tag: s.epochs.retire(), id: id})
	}
}

// bytes is the memory of the interned sets, without Go's map overhead.
func (s *sets) bytes() (n int) {
	for _, p := range *s.pages.Load() {
		n += len(p.words) * 8
	}
	return n + len(s.of)*16 + len(s.byPrint)*32
}

// flipper moves many slots by one seat. Neighbouring blocks mostly have equal
// sets, so the last transition is kept and its references are counted at once.
type flipper struct {
	sets     *sets
	seat     int
	from, to setID
	n        int // slots moved and not counted yet
	pinned   bool
}

// next returns the set to give to a slot that has cur.
func (f *flipper) next(cur setID) (setID, bool) {
	if !f.pinned || cur != f.from {
		f.flush()
		to, ok := f.sets.flip(cur, f.seat)
		if !ok {
			return 0, false
		}
		f.from, f.to, f.pinned = cur, to, true
	}
	f.n++
	return f.to, true
}

func (f *flipper) flush() {
	if !f.pinned {
		return
	}
	if f.n > 0 {
		f.sets.take(f.to, f.n)
		f.sets.drop(f.from, f.n)
	}
	f.sets.drop(f.to, 1)
	f.n, f.pinned = 0, false
}
