package index

import (
	"math/bits"
	"unsafe"
)

// engineMap keeps, for one domain, which key an engine hash stands for and who
// holds it under that hash: engines that draw a random root have hashes of
// their own for equal blocks. The writer's alone; an entry goes with its last
// holder.
//
// Entries live in groups of eight. A hash has a home group, and goes to the next
// one with room when that is full; every group counts the entries that passed
// it, so a search ends at a group nobody passed, and nothing has to move or be
// marked when an entry goes. A tag of seven bits for each entry, all in one word,
// tells where to look.
type engineMap struct {
	sets  *sets
	parts [tableParts]enginePart
}

type enginePart struct {
	mem    memory
	groups []engineGroup
	used   int
}

const groupSize = 8

// engineGroup is three cache lines: what every search reads is in the first, an
// entry's hash and key in one of the others.
type engineGroup struct {
	tags   uint64 // a byte for each entry, 0 = empty, else with the high bit set
	passed uint64 // entries that live in later groups because this one was full
	sets   [groupSize]setID
	spaces [groupSize]uint16
	at     [groupSize]struct{ hash, key uint64 }
}

// maxSpaces is how many scopes an entry can tell apart.
const maxSpaces = 1 << 16

// How full arrays are, in percent: replaced from the first on, then with room to
// grow, or when a sweep finds them emptier than the third, as compact as searches
// like it.
const (
	engineFull    = 75
	engineRoomy   = 58
	engineSparse  = 68
	engineCompact = 73
)

const (
	everyByte = 0x0101010101010101
	highBits  = 0x8080808080808080
)

// engineAt is one entry; the zero value is none. It is void when the map changes.
type engineAt struct {
	g *engineGroup
	i int
}

func (e engineAt) found() bool  { return e.g != nil }
func (e engineAt) hash() uint64 { return e.g.at[e.i].hash }
func (e engineAt) key() uint64  { return e.g.at[e.i].key }
func (e engineAt) space() int   { return int(e.g.spaces[e.i]) }
func (e engineAt) set() setID   { return e.g.sets[e.i] }

func newEngineMap(s *sets) *engineMap { return &engineMap{sets: s} }

func enginePartOf(hash uint64) int { return int(hash * golden >> (64 - partBits)) }

// home returns a hash's group in an array of n, and its tag. The tag's bits have
// no part in choosing the group.
func engineHome(hash uint64, n int) (group int, tag uint64) {
	m := hash * golden
	i, _ := bits.Mul64(m<<partBits, uint64(n))
	return int(i), m>>24&0x7f | 0x80
}

// matches has the high bit of each byte that may be tag: of all that are, and
// seldom of one that differs in its last bit.
func (g *engineGroup) matches(tag uint64) uint64 {
	x := g.tags ^ tag*everyByte
	return (x - everyByte) &^ x & highBits
}

// free is an empty place, groupSize when there is none.
func (g *engineGroup) free() int { return bits.TrailingZeros64(^g.tags&highBits) >> 3 }

// find returns the entry of a hash.
func (m *engineMap) find(hash uint64) engineAt {
	p := &m.parts[enginePartOf(hash)]
	if len(p.groups) == 0 {
		return engineAt{}
	}
	k, tag := engineHome(hash, len(p.groups))
	return p.search(k, tag, hash)
}

func (p *enginePart) search(k int, tag, hash uint64) engineAt {
	for {
		g := &p.groups[k]
		for w := g.matches(tag); w != 0; w &= w - 1 {
			if i := bits.TrailingZeros64(w) >> 3; g.at[i&(groupSize-1)].hash == hash && g.tags>>(i*8)&0xff == tag {
				return engineAt{g, i}
			}
		}
		if g.passed == 0 {
			return engineAt{}
		}
		if k++; k == len(p.groups) {
			k = 0
		}
	}
}

// touch starts loading a hash's group into the cache.
func (m *engineMap) touch(hash uint64) uint64 {
	p := &m.parts[enginePartOf(hash)]
	if len(p.groups) == 0 {
		return 0
	}
	k, _ := engineHome(hash, len(p.groups))
	return p.groups[k].tags
}

// touchRoom does the same for the place where a hash that is not known would go.
func (m *engineMap) touchRoom(hash uint64) uint64 {
	p := &m.parts[enginePartOf(hash)]
	if len(p.groups) == 0 {
		return 0
	}
	k, _ := engineHome(hash, len(p.groups))
	g := &p.groups[k]
	return g.at[g.free()&(groupSize-1)].hash
}

// hold notes that a holder has hash, which stands for key in space. It fails
// when the hash stands for something else, or when there are too many sets.
func (m *engineMap) hold(hash, key uint64, space int, f *flipper) bool {
	p := &m.parts[enginePartOf(hash)]
	if (p.used+1)*100 > len(p.groups)*groupSize*engineFull {
		p.resize((p.used + 1) * 100 / engineRoomy)
	}
	k, tag := engineHome(hash, len(p.groups))
	e := p.search(k, tag, hash)
	if !e.found() {
		to, ok := f.next(0)
		if ok {
			p.put(k, tag, hash, key, to, uint16(space))
		}
		return ok
	}
	if e.key() != key || e.space() != space {
		return false // two blocks of one hash: believe the first
	}
	cur := e.set()
	if m.sets.has(cur, f.seat) {
		return true
	}
	to, ok := f.next(cur)
	if ok {
		e.g.sets[e.i] = to
	}
	return ok
}

// put adds an entry whose home is group k. There is room.
func (p *enginePart) put(k int, tag, hash, key uint64, set setID, space uint16) {
	g := &p.groups[k]
	i := g.free()
	for i == groupSize {
		g.passed++
		if k++; k == len(p.groups) {
			k = 0
		}
		g = &p.groups[k]
		i = g.free()
	}
	g.tags |= tag << (i * 8)
	g.sets[i&(groupSize-1)], g.spaces[i&(groupSize-1)] = set, space
	at := &g.at[i&(groupSize-1)]
	at.hash, at.key = hash, key
	p.used++
}

// release notes that a holder no longer has the entry's block.
func (m *engineMap) release(e engineAt, f *flipper) {
	cur := e.set()
	if !m.sets.has(cur, f.seat) {
		return
	}
	to, ok := f.next(cur)
	if !ok {
		return // sets exhausted: the entry outlives the holder until a sweep
	}
	if to != 0 {
		e.g.sets[e.i] = to
		return
	}
	q := enginePartOf(e.hash())
	m.unlink(e)
	m.shrink(q)
}

// unlink removes an entry. Others stay where they are.
func (m *engineMap) unlink(e engineAt) {
	p := &m.parts[enginePartOf(e.hash())]
	for k, _ := engineHome(e.hash(), len(p.groups)); &p.groups[k] != e.g; {
		p.groups[k].passed--
		if k++; k == len(p.groups) {
			k = 0
		}
	}
	e.g.tags &^= 0xff << (e.i * 8)
	e.g.sets[e.i], e.g.spaces[e.i] = 0, 0
	e.g.at[e.i].hash, e.g.at[e.i].key = 0, 0
	p.used--
}

// each calls f for every entry of an array. f may unlink it.
func (m *engineMap) each(q int, f func(engineAt)) {
	groups := m.parts[q].groups
	for k := range groups {
		g := &groups[k]
		for w := g.tags & highBits; w != 0; w &= w - 1 {
			f(engineAt{g, bits.TrailingZeros64(w) >> 3})
		}
	}
}

// shrink gives memory back when an array is mostly empty.
func (m *engineMap) shrink(q int) {
	if p := &m.parts[q]; len(p.groups) > 4 && p.used*4 < len(p.groups)*groupSize {
		p.resize(p.used * 100 / engineRoomy)
	}
}

// tidy makes an array compact that is rather empty.
func (m *engineMap) tidy(q int) {
	if p := &m.parts[q]; len(p.groups) > 4 && p.used*100 < len(p.groups)*groupSize*engineSparse {
		p.resize(p.used * 100 / engineCompact)
	}
}

// resize replaces the array by one with room for n entries.
func (p *enginePart) resize(n int) {
	old := *p
	groups := n/groupSize + 1
	p.mem, p.used = newMemory(groups*engineSlots), 0
	p.groups = unsafe.Slice((*engineGroup)(unsafe.Pointer(&p.mem.slots[0])), groups)
	for k := range old.groups {
		g := &old.groups[k]
		for w := g.tags & highBits; w != 0; w &= w - 1 {
			i := bits.TrailingZeros64(w) >> 3
			home, tag := engineHome(g.at[i].hash, groups)
			p.put(home, tag, g.at[i].hash, g.at[i].key, g.sets[i], g.spaces[i])
		}
	}
	if len(old.groups) > 0 {
		old.mem.free() // nobody else reads it
	}
}

// engineSlots is a group in slots of tables: memory is counted in those.
const engineSlots = int(unsafe.Sizeof(engineGroup{}) / unsafe.Sizeof(slot{}))

// count is how many hashes are known.
func (m *engineMap) count() (n int) {
	for i := range m.parts {
		n += m.parts[i].used
	}
	return n
}

func (m *engineMap) bytes() (n int) {
	for i := range m.parts {
		n += len(m.parts[i].groups) * int(unsafe.Sizeof(engineGroup{}))
	}
	return n
}

func (m *engineMap) discard() {
	for i := range m.parts {
		if len(m.parts[i].groups) > 0 {
			m.parts[i].mem.free()
		}
		m.parts[i] = enginePart{}
	}
}
