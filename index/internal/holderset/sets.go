package holderset

import (
	"math/bits"
	"sync/atomic"

	"warmroute/index/internal/epoch"
)

// ID names an immutable set of slots. 0 is the empty set; 1 … MaxSlots are the sets
// of one slot, which need no memory (Single); IDs from FirstInterned on are
// interned sets.
type ID = uint32

const (
	FirstInterned = MaxSlots + 1
	MaxID         = 1<<24 - 1

	maxSets     = MaxID - FirstInterned
	setsPerPage = 256
	widths      = 9 // 1, 2, 4, … 256 words: a set has room for its highest slot, rounded up
)

// Single returns the set of one slot.
func Single(slot int) ID { return ID(slot + 1) }

// Sets interns sets of slots, so that lookups compare IDs. Init comes first.
type Sets struct {
	pages atomic.Pointer[[]*page] // by (id - FirstInterned) / setsPerPage

	of      []info        // by id - FirstInterned
	byPrint map[uint64]ID // fingerprint → id
	free    [widths][]ID
	unused  epoch.Limbo[ID]
}

type page struct {
	width int
	words []uint64 // setsPerPage × width; no pointers, so the collector passes over it
}

type info struct {
	print uint64 // xor of the slots' random words
	refs  uint32 // references
	size  uint16 // slots
	width uint8  // log2 of words
}

// Init sets the clock of the lookups.
func (s *Sets) Init(c *epoch.Clock) {
	s.unused.Init(c)
	s.byPrint = map[uint64]ID{}
	s.pages.Store(&[]*page{})
}

// zobrist returns the random word of a slot (splitmix64 of its number): a set's
// fingerprint is the xor over its slots, so adding or removing one is one xor.
func zobrist(slot int) uint64 {
	z := uint64(slot+1) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Words returns the bits of an interned id (≥ FirstInterned). Load them atomically.
func (s *Sets) Words(id ID) []uint64 {
	k := int(id - FirstInterned)
	p := (*s.pages.Load())[k/setsPerPage]
	o := k % setsPerPage * p.width
	return p.words[o : o+p.width]
}

// Has reports whether a set has a slot.
func (s *Sets) Has(id ID, slot int) bool {
	if id < FirstInterned {
		return int(id) == slot+1
	}
	w := s.Words(id)
	return slot>>6 < len(w) && atomic.LoadUint64(&w[slot>>6])>>(slot&63)&1 != 0
}

// Word returns the slots i<<6 … i<<6+63 of a set, as bits.
func (s *Sets) Word(id ID, i int) uint64 {
	if id < FirstInterned {
		if slot := int(id) - 1; slot >= 0 && slot>>6 == i {
			return 1 << (slot & 63)
		}
		return 0
	}
	if w := s.Words(id); i < len(w) {
		return atomic.LoadUint64(&w[i])
	}
	return 0
}

// Agree reports whether a set has a slot, and leaves in agree the slots, as bits, of which the
// same is true. No set has a slot below 0.
func (s *Sets) Agree(id ID, slot int, agree []uint64) (has bool) {
	has = slot >= 0 && s.Has(id, slot)
	for w := range agree {
		word := s.Word(id, w)
		if !has {
			word = ^word
		}
		agree[w] &= word
	}
	return has
}

// Size returns how many slots a set has. Writer only.
func (s *Sets) Size(id ID) int {
	switch {
	case id == 0:
		return 0
	case id < FirstInterned:
		return 1
	}
	return int(s.of[id-FirstInterned].size)
}

// Each calls f for every slot of a set.
func (s *Sets) Each(id ID, f func(slot int)) {
	switch {
	case id == 0:
	case id < FirstInterned:
		f(int(id) - 1)
	default:
		for i, w := range s.Words(id) {
			for ; w != 0; w &= w - 1 {
				f(i<<6 + bits.TrailingZeros64(w))
			}
		}
	}
}

// AppendIn appends the slots of a set that are in a mask.
func (s *Sets) AppendIn(dst []int, id ID, m *Mask) []int {
	s.Each(id, func(slot int) {
		if m.Has(slot) {
			dst = append(dst, slot)
		}
	})
	return dst
}

func (s *Sets) print(id ID) uint64 {
	switch {
	case id == 0:
		return 0
	case id < FirstInterned:
		return zobrist(int(id) - 1)
	}
	return s.of[id-FirstInterned].print
}

// Toggle returns the set with one slot added or removed, with a reference of its
// own. ok is false when there are too many different sets.
func (s *Sets) Toggle(id ID, slot int) (to ID, ok bool) {
	if id == 0 {
		return ID(slot + 1), true
	}
	if id < FirstInterned && int(id) == slot+1 {
		return 0, true
	}
	if id >= FirstInterned && s.of[id-FirstInterned].size == 2 && s.Has(id, slot) {
		s.Each(id, func(other int) {
			if other != slot {
				to = ID(other + 1)
			}
		})
		return to, true
	}
	print := s.print(id) ^ zobrist(slot)
	if to, ok = s.byPrint[print]; ok {
		s.Retain(to)
		return to, true
	}
	return s.build(id, slot, print)
}

func widthFor(slot int) uint8 { return uint8(bits.Len(uint(slot >> 6))) }

// build stores id with a slot toggled.
func (s *Sets) build(id ID, slot int, print uint64) (ID, bool) {
	width := widthFor(slot)
	if id < FirstInterned {
		width = max(width, widthFor(int(id)-1))
	} else {
		width = max(width, s.of[id-FirstInterned].width)
	}
	to, ok := s.alloc(width)
	if !ok {
		return 0, false
	}
	dst := s.Words(to)
	for i := range dst {
		atomic.StoreUint64(&dst[i], 0)
	}
	if id < FirstInterned {
		other := int(id) - 1
		atomic.StoreUint64(&dst[other>>6], 1<<(other&63))
	} else {
		for i, w := range s.Words(id) {
			atomic.StoreUint64(&dst[i], w)
		}
	}
	size := s.Size(id) + 1
	if dst[slot>>6]>>(slot&63)&1 != 0 {
		size -= 2
	}
	atomic.StoreUint64(&dst[slot>>6], dst[slot>>6]^1<<(slot&63))
	s.of[to-FirstInterned] = info{print: print, refs: 1, size: uint16(size), width: width}
	s.byPrint[print] = to
	return to, true
}

// alloc returns an unused id of a width.
func (s *Sets) alloc(width uint8) (ID, bool) {
	if len(s.free[width]) == 0 && s.unused.Len() >= setsPerPage {
		s.unused.Reclaim(s.reuse)
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
	// Readers hold the shorter slice. Its entries do not change.
	grown := append(pages, &page{width: 1 << width, words: make([]uint64, setsPerPage<<width)})
	s.pages.Store(&grown)
	s.of = append(s.of, make([]info, setsPerPage)...)
	base := ID(FirstInterned + len(pages)*setsPerPage)
	for i := setsPerPage - 1; i > 0; i-- {
		s.of[base-FirstInterned+ID(i)].width = width
		s.free[width] = append(s.free[width], base+ID(i))
	}
	return base, true
}

// reuse lets an ID be given to another set of its width.
func (s *Sets) reuse(id ID) {
	w := s.of[id-FirstInterned].width
	s.free[w] = append(s.free[w], id)
}

// Retain counts a reference to id.
func (s *Sets) Retain(id ID) {
	if id >= FirstInterned {
		s.of[id-FirstInterned].refs++
	}
}

// Release counts a reference fewer. An id without references is used again.
func (s *Sets) Release(id ID) {
	if id < FirstInterned {
		return
	}
	o := &s.of[id-FirstInterned]
	if o.refs--; o.refs == 0 {
		delete(s.byPrint, o.print)
		s.unused.Put(id)
	}
}

// Len returns how many sets are interned.
func (s *Sets) Len() int { return len(s.byPrint) }

// Bytes returns the memory of the interned sets, without Go's map overhead.
func (s *Sets) Bytes() (n int) {
	for _, p := range *s.pages.Load() {
		n += len(p.words) * 8
	}
	return n + len(s.of)*16 + len(s.byPrint)*32
}
