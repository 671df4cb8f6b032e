package index

import "sync/atomic"

// seatSet is an immutable set of seats.
type seatSet struct{ words []uint64 }

func (s *seatSet) has(seat int) bool {
	return s != nil && seat >= 0 && seat>>6 < len(s.words) && s.words[seat>>6]>>(seat&63)&1 != 0
}

func (s *seatSet) word(i int) uint64 {
	if s == nil || i >= len(s.words) {
		return 0
	}
	return s.words[i]
}

// with is the set with a seat added or taken; nil when nothing is left.
func (s *seatSet) with(seat int, on bool) *seatSet {
	n := seat>>6 + 1
	if s != nil {
		n = max(n, len(s.words))
	}
	to := &seatSet{make([]uint64, n)}
	if s != nil {
		copy(to.words, s.words)
	}
	if on {
		to.words[seat>>6] |= 1 << (seat & 63)
	} else {
		to.words[seat>>6] &^= 1 << (seat & 63)
	}
	for len(to.words) > 0 && to.words[len(to.words)-1] == 0 {
		to.words = to.words[:len(to.words)-1]
	}
	if len(to.words) == 0 {
		return nil
	}
	return to
}

// groupSlot is one boundary of one spec: who holds it.
type groupSlot struct {
	key atomic.Uint64 // 0: never used in this array
	set atomic.Pointer[seatSet]
}

// groupTable maps boundaries to who holds them, by open addressing. One writer at
// a time; readers need no lock: an array's keys never change, sets are immutable,
// and a full array is replaced as a whole.
type groupTable struct {
	slots atomic.Pointer[[]groupSlot]
	used  int // slots with a key
	live  int // slots with a set

	from, to *seatSet // the last change, for neighbours that share it
	seat     int
	on       bool
}

const minGroupSlots = 64

func (t *groupTable) init() {
	s := make([]groupSlot, minGroupSlots)
	t.slots.Store(&s)
}

func (t *groupTable) get(key uint64) *seatSet {
	slots := *t.slots.Load()
	mask := uint64(len(slots) - 1)
	for i := key & mask; ; i = (i + 1) & mask {
		switch slots[i].key.Load() {
		case key:
			return slots[i].set.Load()
		case 0:
			return nil
		}
	}
}

// flip adds a seat to a boundary's set, or takes it.
func (t *groupTable) flip(key uint64, seat int, on bool) {
	s := t.slot(key)
	was := s.set.Load()
	if was.has(seat) == on {
		return
	}
	if t.to == nil || t.from != was || t.seat != seat || t.on != on {
		t.from, t.to, t.seat, t.on = was, was.with(seat, on), seat, on
	}
	s.set.Store(t.to)
	switch {
	case was == nil:
		t.live++
	case t.to == nil:
		t.live--
	}
}

func (t *groupTable) slot(key uint64) *groupSlot {
	slots := *t.slots.Load()
	if (t.used+1)*4 > len(slots)*3 {
		slots = t.rebuild()
	}
	mask := uint64(len(slots) - 1)
	for i := key & mask; ; i = (i + 1) & mask {
		switch slots[i].key.Load() {
		case key:
			return &slots[i]
		case 0:
			slots[i].key.Store(key)
			t.used++
			return &slots[i]
		}
	}
}

// rebuild moves the boundaries that somebody holds to a new array.
func (t *groupTable) rebuild() []groupSlot {
	old := *t.slots.Load()
	n := minGroupSlots
	for n < t.live*3 {
		n *= 2
	}
	slots := make([]groupSlot, n)
	mask := uint64(n - 1)
	t.used = 0
	for i := range old {
		set := old[i].set.Load()
		if set == nil {
			continue
		}
		key := old[i].key.Load()
		at := key & mask
		for slots[at].key.Load() != 0 {
			at = (at + 1) & mask
		}
		slots[at].key.Store(key)
		slots[at].set.Store(set)
		t.used++
	}
	t.slots.Store(&slots)
	return slots
}
