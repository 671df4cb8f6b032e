package hashtable

import (
	"iter"
	"math/bits"
	"sync/atomic"

	"warmroute/index/internal/offheap"
)

// Row is one key of a table, with the number of a set of holders, 0 for the empty set. Readers
// load both.
type Row struct {
	key uint64 // 0: none
	set uint64
}

// Key returns the key of a row. Only the writer calls it, and Set.
func (s *Row) Key() uint64 { return s.key }

// Set returns the number of the row's set.
func (s *Row) Set() uint32 { return uint32(s.set) }

func (s *Row) empty() bool { return s.Set() == 0 }

// Parts is the number of a table's arrays, which grow one at a time.
const (
	Parts    = 1 << partBits
	partBits = 3
	minPart  = 8
)

// Table maps keys to sets by open addressing. One writer at a time; readers need
// no lock. A row whose set is empty keeps its key until its array is replaced. A full
// array is replaced by one without such rows, and freed when no lookup can see it.
type Table struct {
	pool  *offheap.Pool
	seed  uint64 // a secret, so that keys cannot be made to collide
	parts [Parts]atomic.Pointer[part]

	used   [Parts]int // rows with a key
	live   [Parts]int // rows with a set
	builds int        // arrays replaced
}

type part struct {
	rows  []Row
	words []uint64 // their memory
}

// NewTable makes an empty table.
func NewTable(p *offheap.Pool, seed uint64) *Table {
	t := &Table{pool: p, seed: seed}
	for i := range t.parts {
		t.parts[i].Store(t.newPart(minPart))
	}
	return t
}

// newPart makes an array of n rows. If it can be a block of the pool, it gets the
// block's size.
func (t *Table) newPart(n int) *part {
	words := offheap.Words[Row](n)
	if size := 8 * words; size >= offheap.LeastBlock && size <= offheap.RegionSize {
		words = 1 << bits.Len(uint(size-1)) / 8
	}
	p := &part{words: t.pool.Zeroed(words)}
	p.rows = offheap.Of[Row](p.words)
	return p
}

// home returns the array of a key and the index of its first row there.
func (t *Table) home(key uint64) (*part, uint64) {
	m := (key ^ t.seed) * Golden
	p := t.parts[m>>(64-partBits)].Load()
	i, _ := bits.Mul64(m<<partBits, uint64(len(p.rows)))
	return p, i
}

// Get returns the set of a key, the empty one when the key is absent. For lookups.
func (t *Table) Get(key uint64) uint32 {
	p, i := t.home(key)
	for {
		s := &p.rows[i]
		switch atomic.LoadUint64(&s.key) {
		case key:
			return uint32(atomic.LoadUint64(&s.set))
		case 0:
			return 0
		}
		if i++; i == uint64(len(p.rows)) {
			i = 0
		}
	}
}

// Find returns the row of a key, nil when absent. Only the writer calls it and all methods
// below.
func (t *Table) Find(key uint64) *Row {
	p, i := t.home(key)
	for {
		s := &p.rows[i]
		if s.key == key {
			return s
		}
		if s.key == 0 {
			return nil
		}
		if i++; i == uint64(len(p.rows)) {
			i = 0
		}
	}
}

// Insert returns the row of a key. It makes an absent row, which has no set; other
// rows are void then.
func (t *Table) Insert(key uint64) *Row {
	for q := t.partOf(key); ; t.rebuild(int(q), roomy) {
		p, i := t.home(key)
		s := &p.rows[i]
		for ; s.key != 0; s = &p.rows[i] {
			if s.key == key {
				return s
			}
			if i++; i == uint64(len(p.rows)) {
				i = 0
			}
		}
		if (t.used[q]+1)*4 <= len(p.rows)*3 { // at most 75 % full: 8 probes for an absent key, in about 3 cache lines
			t.used[q]++
			atomic.StoreUint64(&s.key, key)
			return s
		}
	}
}

// Set changes a row's set.
func (t *Table) Set(s *Row, set uint32) {
	switch was := s.empty(); {
	case was && set != 0:
		t.live[t.partOf(s.key)]++
	case !was && set == 0:
		t.live[t.partOf(s.key)]--
	}
	atomic.StoreUint64(&s.set, uint64(set))
}

// partOf returns the array of a key.
func (t *Table) partOf(key uint64) uint64 { return (key ^ t.seed) * Golden >> (64 - partBits) }

// Each yields the rows of one array that have a set. Their sets may be changed
// meanwhile.
func (t *Table) Each(part int) iter.Seq[*Row] {
	return func(yield func(*Row) bool) {
		rows := t.parts[part].Load().rows
		for i := range rows {
			if s := &rows[i]; !s.empty() && !yield(s) {
				return
			}
		}
	}
}

// All yields all rows that have a set.
func (t *Table) All() iter.Seq[*Row] {
	return func(yield func(*Row) bool) {
		for q := range t.parts {
			for s := range t.Each(q) {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// Len returns how many keys have a set.
func (t *Table) Len() (n int) {
	for _, l := range t.live {
		n += l
	}
	return n
}

// Bytes returns the memory of the arrays.
func (t *Table) Bytes() (n int) {
	for i := range t.parts {
		n += 8 * len(t.parts[i].Load().words)
	}
	return n
}

// Discard frees everything. The table must not be reachable any more.
func (t *Table) Discard() {
	for i := range t.parts {
		if p := t.parts[i].Load(); p != nil {
			t.pool.Retire(p.words)
		}
	}
}
