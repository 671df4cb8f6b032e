package hybrid

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

// with returns the set with a seat, or without it; nil: that set is empty.
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

// row is the members that hold one block of one spec.
type row struct {
	key atomic.Uint64 // 0: never used in this array
	set atomic.Pointer[seatSet]
}

// table maps blocks (Plan.rowOf) to the members that hold them, by open addressing. It has
// one writer at a time. Readers need no lock: the keys of an array never change, sets are
// immutable, and a longer array replaces a full one.
type table struct {
	rows atomic.Pointer[[]row]
	used int // rows with a key
	live int // rows with a set

	from, to *seatSet // the last change; a neighbour with an equal change shares the set
	at       int
	on       bool
}

const minRows = 64

func (t *table) init() {
	s := make([]row, minRows)
	t.rows.Store(&s)
}

func (t *table) get(key uint64) *seatSet {
	rows := *t.rows.Load()
	mask := uint64(len(rows) - 1)
	for i := key & mask; ; i = (i + 1) & mask {
		switch rows[i].key.Load() {
		case key:
			return rows[i].set.Load()
		case 0:
			return nil
		}
	}
}

// flip adds a seat to a block's set, or removes it.
func (t *table) flip(key uint64, seat int, on bool) {
	s := t.row(key)
	was := s.set.Load()
	if was.has(seat) == on {
		return
	}
	if t.to == nil || t.from != was || t.at != seat || t.on != on {
		t.from, t.to, t.at, t.on = was, was.with(seat, on), seat, on
	}
	s.set.Store(t.to)
	switch {
	case was == nil:
		t.live++
	case t.to == nil:
		t.live--
	}
}

func (t *table) row(key uint64) *row {
	rows := *t.rows.Load()
	if (t.used+1)*4 > len(rows)*3 {
		rows = t.rebuild()
	}
	mask := uint64(len(rows) - 1)
	for i := key & mask; ; i = (i + 1) & mask {
		switch rows[i].key.Load() {
		case key:
			return &rows[i]
		case 0:
			rows[i].key.Store(key)
			t.used++
			return &rows[i]
		}
	}
}

// rebuild moves the blocks that members hold to a new array.
func (t *table) rebuild() []row {
	old := *t.rows.Load()
	n := minRows
	for n < t.live*3 {
		n *= 2
	}
	rows := make([]row, n)
	mask := uint64(n - 1)
	t.used = 0
	for i := range old {
		set := old[i].set.Load()
		if set == nil {
			continue
		}
		key := old[i].key.Load()
		at := key & mask
		for rows[at].key.Load() != 0 {
			at = (at + 1) & mask
		}
		rows[at].key.Store(key)
		rows[at].set.Store(set)
		t.used++
	}
	t.rows.Store(&rows)
	return rows
}
