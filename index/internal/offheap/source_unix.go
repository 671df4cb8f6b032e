//go:build unix && !race

package offheap

import (
	"math/bits"
	"unsafe"
)

// source is mappings: regions, which are cut into blocks, and single ones. It joins
// free halves again, and unmaps a free region.
type source struct {
	regions map[uintptr]*region // by address
	blocks  [orders]*region     // lists of regions that have a free block of an order
	single  map[*uint64]mapping
	spare   []mapping // freed single mappings to use again: fresh pages cost more than clearing
}

// maxSpare is how many freed mappings are kept: one writer at a time replaces
// arrays of one size again and again.
const maxSpare = 2

const orders = 10 // LeastBlock … RegionSize

// region is one mapping. Its blocks of an order are numbered.
type region struct {
	mapping
	free [orders]freeBlocks
	next [orders]*region // in the source's lists; stale members have no free block
	in   [orders]bool    // whether it is in the list
}

// freeBlocks is a bit for each block of an order, lowest first.
type freeBlocks struct {
	bits [RegionSize / LeastBlock / 64]uint64
}

func (f *freeBlocks) put(i int) { f.bits[i>>6] |= 1 << (i & 63) }

func (f *freeBlocks) has(i int) bool { return f.bits[i>>6]>>(i&63)&1 != 0 }

func (f *freeBlocks) drop(i int) { f.bits[i>>6] &^= 1 << (i & 63) }

func (f *freeBlocks) first() int {
	for w, b := range f.bits {
		if b != 0 {
			return w<<6 + bits.TrailingZeros64(b)
		}
	}
	return -1
}

func orderOf(size int) int { return bits.Len(uint(size-1) / LeastBlock) }

// take returns n words, which is a size off the heap, nil where none can be mapped.
func (s *source) take(n int) (w []uint64, fresh bool) {
	if shared(n * 8) {
		if at := s.block(orderOf(n * 8)); at != nil {
			w = unsafe.Slice((*uint64)(at), n)
		}
		return w, false
	}
	m, fresh := mapping{}, true
	for i, old := range s.spare {
		if old.size == wholePages(n*8) {
			m, fresh = old, false
			s.spare = append(s.spare[:i], s.spare[i+1:]...)
			break
		}
	}
	if fresh {
		var ok bool
		if m, ok = mapMemory(n * 8); !ok {
			return nil, false
		}
	}
	if s.single == nil {
		s.single = map[*uint64]mapping{}
	}
	w = m.words(n)
	s.single[&w[0]] = m
	return w, fresh
}

// block takes a block of an order, split off a larger one where there is none.
func (s *source) block(order int) unsafe.Pointer {
	for o := order; o < orders; o++ {
		for r := s.blocks[o]; r != nil; r = s.blocks[o] {
			i := r.free[o].first()
			if i < 0 {
				s.blocks[o], r.in[o] = r.next[o], false
				continue
			}
			return s.split(r, o, i, order)
		}
	}
	m, ok := mapMemory(RegionSize)
	if !ok {
		return nil
	}
	r := &region{mapping: m}
	if s.regions == nil {
		s.regions = map[uintptr]*region{}
	}
	s.regions[uintptr(r.base)] = r
	s.put(r, orders-1, 0)
	return s.split(r, orders-1, 0, order)
}

// split takes block i of order o and gives back the part that is too much.
func (s *source) split(r *region, o, i, order int) unsafe.Pointer {
	r.free[o].drop(i)
	for ; o > order; o-- {
		i *= 2
		s.put(r, o-1, i+1)
	}
	return unsafe.Add(r.base, i*LeastBlock<<order)
}

func (s *source) put(r *region, o, i int) {
	r.free[o].put(i)
	if !r.in[o] {
		r.next[o], r.in[o] = s.blocks[o], true
		s.blocks[o] = r
	}
}

// free takes back words that take returned; words of the heap belong to the collector.
func (s *source) free(w []uint64) {
	if len(w)*8 < LeastBlock {
		return
	}
	if m, ok := s.single[&w[0]]; ok {
		delete(s.single, &w[0])
		if len(s.spare) == maxSpare {
			s.spare[0].unmap()
			s.spare = append(s.spare[:0], s.spare[1:]...)
		}
		s.spare = append(s.spare, m)
		return
	}
	at := uintptr(unsafe.Pointer(&w[0]))
	r := s.regions[at&^(RegionSize-1)]
	if r == nil {
		return
	}
	o := orderOf(len(w) * 8)
	i := int(at-uintptr(r.base)) / (LeastBlock << o)
	for ; o < orders-1 && r.free[o].has(i^1); o++ {
		r.free[o].drop(i ^ 1)
		i /= 2
	}
	if o < orders-1 {
		s.put(r, o, i)
		return
	}
	s.unmapRegion(r)
}

// unmapRegion gives a free region back.
func (s *source) unmapRegion(r *region) {
	for o := range s.blocks {
		if !r.in[o] {
			continue
		}
		for q := &s.blocks[o]; *q != nil; q = &(*q).next[o] {
			if *q == r {
				*q = r.next[o]
				break
			}
		}
	}
	delete(s.regions, uintptr(r.base))
	r.unmap()
}

// trim unmaps the spare mappings.
func (s *source) trim() {
	for i := range s.spare {
		s.spare[i].unmap()
	}
	s.spare = nil
}

// discard unmaps everything.
func (s *source) discard() {
	s.trim()
	for _, r := range s.regions {
		s.unmapRegion(r)
	}
	for _, m := range s.single {
		m.unmap()
	}
	s.single = nil
}
