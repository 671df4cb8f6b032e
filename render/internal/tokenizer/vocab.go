package tokenizer

import (
	"math/bits"

	"github.com/zeebo/xxh3"
)

// vocabulary maps texts to ids: open addressing over one arena of bytes, a quarter of the
// size of a Go map of strings.
type vocabulary struct {
	slots []vocabSlot
	arena []byte
	count int
	// crowded: a text is more than mostProbes slots from the slot of its hash.
	crowded bool
}

// mostProbes bounds the slots between an entry and the slot of its hash. Tables of 10
// million random keys stay below 500.
const mostProbes = 4096

type vocabSlot struct {
	hash  uint32
	start uint32
	size  uint32 // bytes, and whole in the top bit; used slots are never empty texts
	id    uint32
}

// whole marks a text whose merges end in its own single token, so that a word
// equal to it needs no merging.
const whole = 1 << 31

func newVocabulary(n, bytes int) *vocabulary {
	return &vocabulary{slots: make([]vocabSlot, tableSize(n)), arena: make([]byte, 0, bytes)}
}

// tableSize returns the power of two at which n entries fill a table to ¾ at most.
func tableSize(n int) int { return 1 << bits.Len(uint(n+n/3+8)) }

// put adds or replaces an entry. The vocabulary must have a free slot.
func (v *vocabulary) put(text []byte, id uint32) {
	h := uint32(xxh3.Hash(text))
	mask := uint32(len(v.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &v.slots[i]
		if (i-h)&mask > mostProbes {
			v.crowded = true
			return
		}
		if s.size == 0 {
			*s = vocabSlot{h, uint32(len(v.arena)), uint32(len(text)), id}
			v.arena = append(v.arena, text...)
			v.count++
			return
		}
		if s.hash == h && string(v.text(s)) == string(text) {
			s.id = id
			return
		}
	}
}

func (v *vocabulary) text(s *vocabSlot) []byte {
	return v.arena[s.start : s.start+s.size&^whole]
}

// find returns the slot of text, or nil. h is its xxh3 hash's low half.
func (v *vocabulary) find(text []byte, h uint32) *vocabSlot {
	mask := uint32(len(v.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &v.slots[i]
		if s.hash == h && s.size&^whole == uint32(len(text)) && string(v.text(s)) == string(text) {
			return s
		}
		if s.size == 0 {
			return nil
		}
	}
}

func (v *vocabulary) id(text []byte) (uint32, bool) {
	if len(text) == 0 {
		return 0, false
	}
	if s := v.find(text, uint32(xxh3.Hash(text))); s != nil {
		return s.id, true
	}
	return 0, false
}

// merges maps a pair of ids to the rank of its merge and the resulting id.
type merges struct {
	slots []mergeSlot
	shift uint
	// seen has a bit for the hash of each pair in the table. Most pairs of a text are
	// not in it, and the bits fit a processor's cache although the slots do not.
	seen      []uint64
	seenShift uint
	crowded   bool // as of a vocabulary
}

type mergeSlot struct {
	key   uint64 // pair + 1, so that 0 is empty: no pair is (2³²-1, 2³²-1)
	value uint64 // rank in the upper half, id in the lower
}

// seenBits is the number of the filter's bits per slot: 8 let about one absent pair in
// fifteen through.
const seenBits = 8

func newMerges(n int) *merges {
	size := tableSize(n)
	shift := uint(64 - bits.TrailingZeros(uint(size)))
	return &merges{slots: make([]mergeSlot, size), shift: shift, seen: make([]uint64, size*seenBits/64+1),
		seenShift: shift - uint(bits.TrailingZeros(seenBits))}
}

// pairHash spreads a pair by Fibonacci hashing: callers use the upper bits of its product
// with 2⁶⁴/φ.
func pairHash(key uint64) uint64 { return key * 0x9E3779B97F4A7C15 }

func (m *merges) put(a, b, rank, id uint32) {
	key := (uint64(a)<<32 | uint64(b)) + 1
	h := pairHash(key)
	m.seen[h>>m.seenShift/64] |= 1 << (h >> m.seenShift & 63)
	mask := uint64(len(m.slots) - 1)
	first := h >> m.shift
	i := first
	for m.slots[i].key != 0 && m.slots[i].key != key {
		if i = (i + 1) & mask; (i-first)&mask > mostProbes {
			m.crowded = true
			return
		}
	}
	m.slots[i] = mergeSlot{key, uint64(rank)<<32 | uint64(id)}
}

// noMerge is greater than every rank.
const noMerge = ^uint64(0)

// get returns the pair's value, or noMerge.
func (m *merges) get(a, b uint32) uint64 {
	key := (uint64(a)<<32 | uint64(b)) + 1
	h := pairHash(key)
	if m.seen[h>>m.seenShift/64]>>(h>>m.seenShift&63)&1 == 0 {
		return noMerge
	}
	mask := uint64(len(m.slots) - 1)
	for i := h >> m.shift; ; i = (i + 1) & mask {
		switch s := &m.slots[i]; s.key {
		case key:
			return s.value
		case 0:
			return noMerge
		}
	}
}
