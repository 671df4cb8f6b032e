package index

import (
	"iter"
	"math/bits"
	"slices"
	"sync/atomic"

	"warmroute/index/internal/holderset"
)

// Found is the result of a lookup, in memory that the next lookup uses again. It
// is not for concurrent use; its zero value is ready. If many holders end at one
// depth, end writes their depths as one array, so that a prompt that all hold
// costs no more than a prompt that few hold.
type Found struct {
	flat [64]int32 // one depth, to be copied; the first field: copies from an address that crosses cache lines take a tenth longer

	words int
	first []uint64 // slots that hold the first block
	alive []uint64 // the slots of first that have held every block so far
	ends  []int32  // by slot: blocks without a gap; valid for slots in first
	ids   []int32  // HolderIDs by slot

	decided []uint64 // the slots of first whose groups decide: ends are the blocks that they hit
	full    []int32  // by slot, of decided: blocks of full attention without a gap
	block   int32    // tokens of a block, if groups decided any slot
	grouped []Match  // the other holders whose groups decide; not in first

	list   []Match // the complete result, when listed: not only blocks on GPU
	listed bool

	raw bool // blocks that are held are found, also if they do not count
}

// reset empties f and makes room for words of slots.
func (f *Found) reset(words int) {
	f.words, f.listed, f.list = words, false, f.list[:0]
	f.grouped, f.block = f.grouped[:0], 0
	if len(f.first) < words {
		n := max(words, 2*len(f.first))
		f.first, f.alive, f.decided = make([]uint64, n), make([]uint64, n), make([]uint64, n)
		f.ends, f.full = make([]int32, n*64), make([]int32, n*64)
	}
	clear(f.first[:words])
}

// Set replaces the content of f, for stand-ins of an index.
func (f *Found) Set(all []Match) { f.list, f.listed = all, true }

// Len returns how many holders All yields.
func (f *Found) Len() int {
	if f.listed {
		return len(f.list)
	}
	n := len(f.grouped)
	for _, w := range f.first[:f.words] {
		n += bits.OnesCount64(w)
	}
	return n
}

// All yields a Match for each holder with blocks, in no order.
func (f *Found) All() iter.Seq[Match] {
	return func(yield func(Match) bool) {
		if f.listed {
			for i := range f.list {
				if !yield(f.list[i]) {
					return
				}
			}
			return
		}
		for i, w := range f.first[:f.words] {
			for ; w != 0; w &= w - 1 {
				bit := bits.TrailingZeros64(w)
				end, id := f.ends[i<<6+bit], HolderID(f.ids[i<<6+bit])
				if f.block > 0 && f.decided[i]>>bit&1 != 0 {
					if !yield(Match{ID: id, Blocks: end, Lower: end, Storage: end,
						Grouped: true, Hit: end * f.block, Full: f.full[i<<6+bit] * f.block}) {
						return
					}
				} else if !yield(Match{ID: id, Blocks: end, Lower: end, Storage: end}) {
					return
				}
			}
		}
		for i := range f.grouped {
			if !yield(f.grouped[i]) {
				return
			}
		}
	}
}

// write turns f into a list.
func (f *Found) write() {
	if !f.listed {
		f.list = f.AppendTo(f.list[:0])
		f.listed = true
	}
}

// AppendTo appends the matches of All.
func (f *Found) AppendTo(dst []Match) []Match {
	dst = slices.Grow(dst, f.Len())
	for m := range f.All() {
		dst = append(dst, m)
	}
	return dst
}

// begin makes first and alive the holders of the first block that count, and
// reports whether there are any.
func (f *Found) begin(sh *shard, set holderset.ID) bool {
	any := uint64(0)
	for i := range f.words {
		w := sh.sets.Word(set, i) & sh.slots.Live.Load(i)
		if !f.raw {
			w &^= sh.hidden.Load(i)
		}
		f.first[i], f.alive[i] = w, w
		any |= w
	}
	return any != 0
}

// keep ends the holders that are not in a set at depth p, and reports whether any
// holder is left.
func (f *Found) keep(s *holderset.Sets, set holderset.ID, p int32) bool {
	any := uint64(0)
	if set < holderset.FirstInterned {
		slot := int(set) - 1
		for i, w := range f.alive[:f.words] {
			left := uint64(0)
			if slot >= 0 && slot>>6 == i {
				left = w & (1 << (slot & 63))
			}
			f.end(i, w&^left, p)
			f.alive[i] = left
			any |= left
		}
		return any != 0
	}
	bits := s.Words(set)
	for i, w := range f.alive[:f.words] {
		left := uint64(0)
		if i < len(bits) {
			left = w & atomic.LoadUint64(&bits[i])
		}
		f.end(i, w&^left, p)
		f.alive[i] = left
		any |= left
	}
	return any != 0
}

// few holders' ends are written one by one.
const few = 12

// end records that holders, 64 to a word, end at depth p.
func (f *Found) end(word int, gone uint64, p int32) {
	if gone == 0 {
		return
	}
	ends := f.ends[word<<6 : word<<6+64]
	if f.alive[word] == f.first[word] && bits.OnesCount64(gone) > few { // no holder of the word has an end yet
		if f.flat[0] != p {
			for i := range f.flat {
				f.flat[i] = p
			}
		}
		copy(ends, f.flat[:])
		return
	}
	for ; gone != 0; gone &= gone - 1 {
		ends[bits.TrailingZeros64(gone)&63] = p
	}
}

// finish ends the holders that are left.
func (f *Found) finish(p int32) {
	for i, w := range f.alive[:f.words] {
		f.end(i, w, p)
	}
}
