package index

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// slot is one key of a table. Readers load key and val; child belongs to the
// writer.
type slot struct {
	key   uint64 // 0: never used in this array; gone: being given to another key
	val   uint64 // see the val constants
	child uint64 // of leases: the number of a claim
}

// A val holds the set of holders in its low 24 bits, and of leases a deadline from
// bit 32 on.
const (
	valSet  = 1<<24 - 1
	valTick = 32 // in an emptied slot: the epoch it was emptied in
)

// gone is no key.
const gone = ^uint64(0)

const (
	tableParts = 8 // arrays of a table, grown one at a time
	partBits   = 3
	minPart    = 8

	// golden is 2^64 / golden ratio, odd: multiplying by it spreads keys that
	// differ anywhere over the high bits, which choose part and slot.
	golden = 0x9e3779b97f4a7c15
)

// table maps keys to vals by open addressing. One writer at a time; readers
// need no lock. An emptied slot (set 0) keeps its key until the slot is given to
// another one, which happens only when every running lookup started after it was
// emptied: so while a lookup runs, a slot changes its key at most once, and a
// lookup that finds the key unchanged after it has read the val has the key's
// val. An array that is full is replaced as a whole and freed when no lookup can
// see it.
type table struct {
	epochs *epochs
	seed   uint64 // secret of the index, so that keys cannot be made to collide
	parts  [tableParts]atomic.Pointer[part]

	used   [tableParts]int // slots with a key
	live   [tableParts]int // slots with a set
	builds uint64          // arrays replaced: slot pointers are valid while it stands still

	settled uint64 // slots emptied in earlier epochs may be reused

	// churns: keys come and go with every request.
	churns bool

	sink uint64 // keeps touches from being optimised away
}

type part struct {
	base unsafe.Pointer
	n    uint64
	mem  memory
}

func newPart(e *epochs, n int) *part {
	m := e.memory(n)
	return &part{base: unsafe.Pointer(&m.slots[0]), n: uint64(len(m.slots)), mem: m}
}

func (p *part) at(i uint64) *slot {
	return (*slot)(unsafe.Add(p.base, i*uint64(unsafe.Sizeof(slot{}))))
}

func newTable(e *epochs, seed uint64) *table {
	t := &table{epochs: e, seed: seed}
	for i := range t.parts {
		t.parts[i].Store(newPart(e, minPart))
	}
	return t
}

// home returns the array of a key and the index of its first slot there.
func (t *table) home(key uint64) (*part, uint64) {
	m := (key ^ t.seed) * golden
	p := t.parts[m>>(64-partBits)].Load()
	i, _ := bits.Mul64(m<<partBits, p.n)
	return p, i
}

// get returns the val of a key, 0 when absent. Any goroutine that has entered
// an epoch may call it.
func (t *table) get(key uint64) uint64 {
	p, i := t.home(key)
	for {
		s := p.at(i)
		k := atomic.LoadUint64(&s.key)
		if k == key {
			v := atomic.LoadUint64(&s.val)
			if atomic.LoadUint64(&s.key) == key {
				return v
			}
			// Given away under us: the key had been emptied, and may since
			// have come back in another slot.
			if p, i = t.home(key); true {
				continue
			}
		}
		if k == 0 {
			return 0
		}
		if i++; i == p.n {
			i = 0
		}
	}
}

// touch starts loading a key's slot into the cache.
func (t *table) touch(key uint64) uint64 {
	p, i := t.home(key)
	return atomic.LoadUint64(&p.at(i).key)
}

// touchAll starts loading the slots of keys. Writer only.
func (t *table) touchAll(keys []uint64) {
	sink := uint64(0)
	for _, key := range keys {
		sink += t.touch(key)
	}
	t.sink = sink
}

// find returns the slot of a key, nil when absent. Writer only.
func (t *table) find(key uint64) *slot {
	p, i := t.home(key)
	for {
		s := p.at(i)
		if s.key == key {
			return s
		}
		if s.key == 0 {
			return nil
		}
		if i++; i == p.n {
			i = 0
		}
	}
}

// insert returns the slot of a key, made when absent. A made slot has no set.
// Writer only; slot pointers are void when builds changed.
func (t *table) insert(key uint64) (s *slot, made bool) {
	m := (key ^ t.seed) * golden
	q := m >> (64 - partBits)
	for {
		p := t.parts[q].Load()
		i, _ := bits.Mul64(m<<partBits, p.n)
		var reuse *slot
		for s = p.at(i); s.key != 0; s = p.at(i) {
			if s.key == key {
				return s, false
			}
			if reuse == nil && s.val&valSet == 0 && t.reusable(s) {
				reuse = s
			}
			if i++; i == p.n {
				i = 0
			}
		}
		t.trim(int(q), p, i, reuse)
		if reuse != nil {
			atomic.StoreUint64(&reuse.key, gone)
			atomic.StoreUint64(&reuse.val, 0)
			reuse.child = 0
			atomic.StoreUint64(&reuse.key, key)
			return reuse, true
		}
		if (t.used[q]+1)*4 <= int(p.n)*3 { // at most 75 % full: 8 probes for an absent key, in about 3 cache lines
			t.used[q]++
			atomic.StoreUint64(&s.key, key)
			return s, true
		}
		t.rebuild(int(q), t.fill(int(q)))
	}
}

// trim makes the emptied slots before the empty slot at i empty too: no search
// needs to pass them.
func (t *table) trim(q int, p *part, i uint64, spare *slot) {
	for {
		if i--; i == ^uint64(0) {
			i = p.n - 1
		}
		s := p.at(i)
		if s.key == 0 || s.val&valSet != 0 || s == spare || !t.reusable(s) {
			return
		}
		atomic.StoreUint64(&s.val, 0)
		s.child = 0
		atomic.StoreUint64(&s.key, 0)
		t.used[q]--
	}
}

// reusable says whether an emptied slot may change its key. Epochs are compared
// by their low 32 bits; an older slot than those can tell waits for a rebuild.
func (t *table) reusable(s *slot) bool {
	return int32(uint32(t.settled)-uint32(s.val>>valTick)) > 0
}

// settle lets slots be reused that were emptied before the oldest running
// lookup began. The writer calls it before a batch.
func (t *table) settle(oldest uint64) { t.settled = oldest }

// emptied is what the val of a slot without a set carries.
func (t *table) emptied() uint64 { return t.epochs.now.Load() << valTick }

// How full rebuilt arrays are, in percent: with room to grow before the next
// time, or as compact as lookups like it.
const (
	roomy   = 50
	compact = 66
	airy    = 25
)

// airyMost is how many keys an array that is kept airy may have: 8 arrays are
// then 6 MB.
const airyMost = 8192

// fill is how full to rebuild an array that has become full. Where keys come and
// go, at a quarter full new keys find as many emptied slots as old ones leave
// (at about 60 % in use), and the array need never be rebuilt again.
func (t *table) fill(q int) int {
	if t.churns && t.live[q] <= airyMost {
		return airy
	}
	return roomy
}

// rebuild replaces an array by one that is so full and has no emptied slots.
// Home positions rise with the hash, so both arrays are walked in order.
func (t *table) rebuild(q, percent int) {
	old := t.parts[q].Load()
	held := t.live[q]
	n := max(minPart, (held+1)*100/percent+1)
	step := 1 << max(0, bits.Len(uint(n))-5) // sizes in steps of 3 to 6 %, so that arrays can be used again
	n = (n + step - 1) / step * step
	p := newPart(t.epochs, n)
	move := func(s *slot) {
		i, _ := bits.Mul64((s.key^t.seed)*golden<<partBits, p.n)
		for p.at(i).key != 0 {
			if i++; i == p.n {
				i = 0
			}
		}
		*p.at(i) = *s
	}
	for i := range old.n {
		if s := old.at(i); s.key != 0 && s.val&valSet != 0 {
			move(s)
		}
	}
	t.used[q] = held
	t.builds++
	t.parts[q].Store(p)
	t.epochs.discard(old.mem)
}

// partOf is the array a key lives in.
func (t *table) partOf(key uint64) uint64 { return (key ^ t.seed) * golden >> (64 - partBits) }

// set changes a slot's set and keeps the count of held keys.
func (t *table) set(s *slot, id setID) {
	was := s.val & valSet
	if was == 0 && id != 0 {
		t.live[t.partOf(s.key)]++
	} else if was != 0 && id == 0 {
		t.live[t.partOf(s.key)]--
	}
	v := s.val&^valSet | uint64(id)
	if id == 0 {
		v = t.emptied()
	}
	atomic.StoreUint64(&s.val, v)
}

// count is how many keys are held. Writer only.
func (t *table) count() (n int) {
	for _, l := range t.live {
		n += l
	}
	return n
}

// bytes is the memory of the arrays. Writer only.
func (t *table) bytes() (n int) {
	for i := range t.parts {
		n += int(t.parts[i].Load().n) * int(unsafe.Sizeof(slot{}))
	}
	return n
}

// discard frees everything; nobody may reach the table any more.
func (t *table) discard() {
	for i := range t.parts {
		if p := t.parts[i].Load(); p != nil {
			t.epochs.discard(p.mem)
		}
	}
}
