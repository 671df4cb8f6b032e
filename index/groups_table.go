package index

import "sync/atomic"

// slotSet is an immutable set of slots.
type slotSet struct{ words []uint64 }

func (s *slotSet) has(slot int) bool {
	return s != nil && slot >= 0 && slot>>6 < len(s.words) && s.words[slot>>6]>>(slot&63)&1 != 0
}

func (s *slotSet) word(i int) uint64 {
	if s == nil || i >= len(s.words) {
		return 0
	}
	return s.words[i]
}

// with is the set with a slot added or taken; nil when nothing is left.
func (s *slotSet) with(slot int, on bool) *slotSet {
	n := slot>>6 + 1
	if s != nil {
		n = max(n, len(s.words))
	}
	to := &slotSet{make([]uint64, n)}
	if s != nil {
		copy(to.words, s.words)
	}
	if on {
		to.words[slot>>6] |= 1 << (slot & 63)
	} else {
		to.words[slot>>6] &^= 1 << (slot & 63)
	}
	for len(to.words) > 0 && to.words[len(to.words)-1] == 0 {
		to.words = to.words[:len(to.words)-1]
	}
	if len(to.words) == 0 {
		return nil
	}
	return to
}

// groupRow is the holders of one boundary of one spec.
type groupRow struct {
	key atomic.Uint64 // 0: never used in this array
	set atomic.Pointer[slotSet]
}

// groupTable maps boundaries to their holders, by open addressing. One writer at
// a time; readers need no lock: an array's keys never change, sets are immutable,
// and a full array is replaced as a whole.
type groupTable struct {
	rows atomic.Pointer[[]groupRow]
	used int // rows with a key
	live int // rows with a set

	from, to *slotSet // the last change, for neighbours that share it
	at       int
	on       bool
}

const minGroupRows = 64

func (t *groupTable) init() {
	s := make([]groupRow, minGroupRows)
	t.rows.Store(&s)
}

func (t *groupTable) get(key uint64) *slotSet {
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

// flip adds a slot to a boundary's set, or takes it.
func (t *groupTable) flip(key uint64, slot int, on bool) {
	s := t.row(key)
	was := s.set.Load()
	if was.has(slot) == on {
		return
	}
	if t.to == nil || t.from != was || t.at != slot || t.on != on {
		t.from, t.to, t.at, t.on = was, was.with(slot, on), slot, on
	}
	s.set.Store(t.to)
	switch {
	case was == nil:
		t.live++
	case t.to == nil:
		t.live--
	}
}

func (t *groupTable) row(key uint64) *groupRow {
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

// rebuild moves the boundaries that have holders to a new array.
func (t *groupTable) rebuild() []groupRow {
	old := *t.rows.Load()
	n := minGroupRows
	for n < t.live*3 {
		n *= 2
	}
	rows := make([]groupRow, n)
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
