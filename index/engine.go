package index

import "math/bits"

// engineMap keeps, for one domain, which key an engine hash stands for and who
// holds it under that hash: engines that draw a random root have hashes of
// their own for equal blocks. The writer's alone; an entry goes with its last
// holder, and the entries behind it move up, so there are no emptied slots.
type engineMap struct {
	epochs *epochs
	sets   *sets
	parts  [tableParts]enginePart
}

// In an engine map's slot, key is the engine hash, child the key it stands for,
// and val the set of holders (low 24 bits) with the space's number above.
const valSpace = 32

type enginePart struct {
	mem  memory
	used int
}

func newEngineMap(e *epochs, s *sets) *engineMap { return &engineMap{epochs: e, sets: s} }

func engineHome(hash uint64, n int) (part int, home int) {
	m := hash * golden
	i, _ := bits.Mul64(m<<partBits, uint64(n))
	return int(m >> (64 - partBits)), int(i)
}

func enginePartOf(hash uint64) int { return int(hash * golden >> (64 - partBits)) }

// find returns the entry of a hash, nil when there is none.
func (m *engineMap) find(hash uint64) *slot {
	p := &m.parts[enginePartOf(hash)]
	n := len(p.mem.slots)
	if n == 0 {
		return nil
	}
	_, i := engineHome(hash, n)
	for {
		s := &p.mem.slots[i]
		if s.val&valSet == 0 {
			return nil
		}
		if s.key == hash {
			return s
		}
		if i++; i == n {
			i = 0
		}
	}
}

// touch starts loading a hash's slot into the cache.
func (m *engineMap) touch(hash uint64) uint64 {
	p := &m.parts[enginePartOf(hash)]
	if len(p.mem.slots) == 0 {
		return 0
	}
	_, i := engineHome(hash, len(p.mem.slots))
	return p.mem.slots[i].key
}

// hold notes that a holder has hash, which stands for key in space. It fails
// when the hash stands for something else, or when there are too many sets.
func (m *engineMap) hold(hash, key uint64, space int, f *flipper) bool {
	q := enginePartOf(hash)
	p := &m.parts[q]
	if (p.used+1)*5 > len(p.mem.slots)*4 {
		m.resize(p, max(minPart, (p.used+1)*8/5+1)) // to 62 % full, so the next is 28 % more entries away
	}
	n := len(p.mem.slots)
	_, i := engineHome(hash, n)
	for {
		s := &p.mem.slots[i]
		cur := setID(s.val & valSet)
		if cur == 0 || s.key == hash {
			if cur != 0 && (s.child != key || int(s.val>>valSpace) != space) {
				return false // two blocks of one hash: believe the first
			}
			if cur != 0 && m.sets.has(cur, f.seat) {
				return true
			}
			to, ok := f.next(cur)
			if !ok {
				return false
			}
			if cur == 0 {
				p.used++
				s.key, s.child = hash, key
				s.val = uint64(space) << valSpace
			}
			s.val = s.val&^valSet | uint64(to)
			return true
		}
		if i++; i == n {
			i = 0
		}
	}
}

// release notes that a holder no longer has the entry's block.
func (m *engineMap) release(s *slot, f *flipper) {
	cur := setID(s.val & valSet)
	if !m.sets.has(cur, f.seat) {
		return
	}
	to, ok := f.next(cur)
	if !ok {
		return // sets exhausted: the entry outlives the holder until a sweep
	}
	if to != 0 {
		s.val = s.val&^valSet | uint64(to)
		return
	}
	q := enginePartOf(s.key)
	m.unlink(s)
	m.shrink(q)
}

// unlink removes an entry and moves up those that were pushed behind it.
func (m *engineMap) unlink(s *slot) {
	p := &m.parts[enginePartOf(s.key)]
	n := len(p.mem.slots)
	_, hole := engineHome(s.key, n)
	for &p.mem.slots[hole] != s {
		if hole++; hole == n {
			hole = 0
		}
	}
	for i := hole; ; {
		if i++; i == n {
			i = 0
		}
		next := p.mem.slots[i]
		if next.val&valSet == 0 {
			break
		}
		_, home := engineHome(next.key, n)
		if behind(i, home, n) >= behind(i, hole, n) { // its search passes the hole
			p.mem.slots[hole] = next
			hole = i
		}
	}
	p.mem.slots[hole] = slot{}
	p.used--
}

// behind is how far slot i is behind slot from, in a ring of n.
func behind(i, from, n int) int {
	if i < from {
		return i - from + n
	}
	return i - from
}

// shrink gives memory back when an array is mostly empty.
func (m *engineMap) shrink(q int) {
	if p := &m.parts[q]; len(p.mem.slots) > 4*minPart && p.used*4 < len(p.mem.slots) {
		m.resize(p, max(minPart, p.used*8/5+1))
	}
}

func (m *engineMap) resize(p *enginePart, n int) {
	old := p.mem
	p.mem = newMemory(n)
	for _, s := range old.slots {
		if s.val&valSet == 0 {
			continue
		}
		_, i := engineHome(s.key, n)
		for p.mem.slots[i].val&valSet != 0 {
			if i++; i == n {
				i = 0
			}
		}
		p.mem.slots[i] = s
	}
	old.free() // nobody else reads it
}

// count is how many hashes are known.
func (m *engineMap) count() (n int) {
	for i := range m.parts {
		n += m.parts[i].used
	}
	return n
}

func (m *engineMap) bytes() (n int) {
	for i := range m.parts {
		n += len(m.parts[i].mem.slots) * 24
	}
	return n
}

func (m *engineMap) discard() {
	for i := range m.parts {
		m.parts[i].mem.free()
		m.parts[i] = enginePart{}
	}
}
