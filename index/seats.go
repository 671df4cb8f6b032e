package index

import (
	"math/bits"
	"sync/atomic"
)

const maskWords = MaxHolders / 64

// mask is one bit per seat, read without a lock.
type mask [maskWords]uint64

func (m *mask) load(word int) uint64 { return atomic.LoadUint64(&m[word]) }

func (m *mask) put(seat int, on bool) {
	w := m[seat>>6] &^ (1 << (seat & 63))
	if on {
		w |= 1 << (seat & 63)
	}
	atomic.StoreUint64(&m[seat>>6], w)
}

func (m *mask) has(seat int) bool { return atomic.LoadUint64(&m[seat>>6])>>(seat&63)&1 != 0 }

// seating gives the incarnations of holders numbers that are small enough for
// bit sets. A killed seat is invisible at once; its bits are swept out of the
// sets later, and only then, and after the lookups that could have read a stale
// bit have ended, the seat is given to somebody else. One writer at a time.
type seating struct {
	epochs *epochs
	ids    atomic.Pointer[[]HolderID]     // by seat, replaced as a whole
	bySelf atomic.Pointer[[]atomic.Int32] // by HolderID: live seat + 1, 0 = none
	live   mask
	words  atomic.Int32 // words of masks in use

	made    int
	free    []int
	resting []restingSeat
	dead    []int // killed, not swept
}

type restingSeat struct {
	tag  uint64
	seat int
}

func (s *seating) init(e *epochs) {
	s.epochs = e
	s.ids.Store(&[]HolderID{})
	s.bySelf.Store(&[]atomic.Int32{})
}

// grown returns p's array with room for index i.
func grown(p *atomic.Pointer[[]atomic.Int32], i int) []atomic.Int32 {
	old := *p.Load()
	if i < len(old) {
		return old
	}
	bigger := make([]atomic.Int32, max(8, 2*len(old), i+1))
	for k := range old {
		bigger[k].Store(old[k].Load())
	}
	p.Store(&bigger)
	return bigger
}

// take returns a seat for a holder, live at once.
func (s *seating) take(id HolderID) (seat int, ok bool) {
	if len(s.free) == 0 {
		s.rest()
	}
	switch n := len(s.free); {
	case n > 0:
		seat = s.free[n-1]
		s.free = s.free[:n-1]
	case s.made < MaxHolders:
		seat = s.made
		s.made++
	default:
		return 0, false
	}
	ids := make([]HolderID, max(s.made, len(*s.ids.Load())))
	copy(ids, *s.ids.Load())
	ids[seat] = id
	s.ids.Store(&ids)
	grown(&s.bySelf, int(id))[id].Store(int32(seat) + 1)
	if w := int32(seat>>6) + 1; w > s.words.Load() {
		s.words.Store(w)
	}
	s.live.put(seat, true)
	return seat, true
}

// rest frees the swept seats no lookup can confuse any more.
func (s *seating) rest() {
	low, kept := s.epochs.oldest(), 0
	for _, r := range s.resting {
		if r.tag > low {
			s.resting[kept] = r
			kept++
			continue
		}
		s.free = append(s.free, r.seat)
	}
	s.resting = s.resting[:kept]
}

// seatOf is the live seat of a holder.
func (s *seating) seatOf(id HolderID) (int, bool) {
	b := *s.bySelf.Load()
	if int(id) >= len(b) || id < 0 {
		return 0, false
	}
	seat := int(b[id].Load()) - 1
	return seat, seat >= 0
}

func (s *seating) id(seat int) HolderID { return (*s.ids.Load())[seat] }

// kill takes a seat out of all lookups.
func (s *seating) kill(seat int) {
	if !s.live.has(seat) {
		return
	}
	s.live.put(seat, false)
	(*s.bySelf.Load())[s.id(seat)].Store(0)
	s.dead = append(s.dead, seat)
}

// swept says that no set names the seats any more.
func (s *seating) swept(seats []int) {
	tag := s.epochs.retire()
	for _, seat := range seats {
		s.resting = append(s.resting, restingSeat{tag, seat})
	}
	kept := s.dead[:0]
	for _, d := range s.dead {
		gone := false
		for _, seat := range seats {
			gone = gone || seat == d
		}
		if !gone {
			kept = append(kept, d)
		}
	}
	s.dead = kept
}

// each calls f for every live seat.
func (s *seating) each(f func(seat int)) {
	for i := range int(s.words.Load()) {
		for w := s.live.load(i); w != 0; w &= w - 1 {
			f(i<<6 + bits.TrailingZeros64(w))
		}
	}
}
