//go:build unix && !race

package index

import (
	"math/bits"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pool gives out memory outside the Go heap, in powers of two of up to a huge
// page, out of regions of one huge page each: what is read at random is then in
// few pages, and a lookup does not wait for the page tables. Halves that are free
// are joined again, and a region that is free is unmapped. The zero value is
// ready; its methods may be called from any goroutine.
type pool struct {
	mu      sync.Mutex
	regions map[uintptr]*region // by address
	free    [poolOrders]*region // lists of regions that have a free block of an order
	large   map[*uint64]memory
}

const poolOrders = 10 // leastBlock … regionSize

// region is one mapping. Its blocks of an order are numbered.
type region struct {
	base unsafe.Pointer
	raw  []byte
	free [poolOrders]freeBlocks
	next [poolOrders]*region // in the pool's lists; stale members have no free block
	in   [poolOrders]bool    // whether it is in the list
}

// freeBlocks is a bit for each block of an order, lowest first.
type freeBlocks struct {
	bits [regionSize / leastBlock / 64]uint64
	n    int
}

func (f *freeBlocks) put(i int) { f.bits[i>>6] |= 1 << (i & 63); f.n++ }

func (f *freeBlocks) has(i int) bool { return f.bits[i>>6]>>(i&63)&1 != 0 }

func (f *freeBlocks) drop(i int) { f.bits[i>>6] &^= 1 << (i & 63); f.n-- }

func (f *freeBlocks) first() int {
	for w, b := range f.bits {
		if b != 0 {
			return w<<6 + bits.TrailingZeros64(b)
		}
	}
	return -1
}

func orderOf(words int) int { return bits.Len(uint(words*8-1) / leastBlock) }

// words returns n words, which may have been used before. n is a power of two
// where it is 4 KiB and more.
func (p *pool) words(n int) []uint64 {
	if n*8 < leastBlock {
		return make([]uint64, n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n*8 > regionSize {
		m := newMemory((n*8 + int(unsafe.Sizeof(slot{})) - 1) / int(unsafe.Sizeof(slot{})))
		w := unsafe.Slice((*uint64)(unsafe.Pointer(&m.slots[0])), n)
		if p.large == nil {
			p.large = map[*uint64]memory{}
		}
		p.large[&w[0]] = m
		return w
	}
	order := orderOf(n)
	at := p.block(order)
	if at == nil {
		return make([]uint64, n) // out of mappings: the heap still works
	}
	return unsafe.Slice((*uint64)(at), n)
}

// block takes a block of an order, split off a larger one where there is none.
func (p *pool) block(order int) unsafe.Pointer {
	for o := order; o < poolOrders; o++ {
		for r := p.free[o]; r != nil; r = p.free[o] {
			i := r.free[o].first()
			if i < 0 {
				p.free[o], r.in[o] = r.next[o], false
				continue
			}
			return p.split(r, o, i, order)
		}
	}
	r := mapRegion()
	if r == nil {
		return nil
	}
	if p.regions == nil {
		p.regions = map[uintptr]*region{}
	}
	p.regions[uintptr(r.base)] = r
	p.put(r, poolOrders-1, 0)
	return p.split(r, poolOrders-1, 0, order)
}

// split takes block i of order o and gives back what is too much of it.
func (p *pool) split(r *region, o, i, order int) unsafe.Pointer {
	r.free[o].drop(i)
	for ; o > order; o-- {
		i *= 2
		p.put(r, o-1, i+1)
	}
	return unsafe.Add(r.base, i*leastBlock<<order)
}

func (p *pool) put(r *region, o, i int) {
	r.free[o].put(i)
	if !r.in[o] {
		r.next[o], r.in[o] = p.free[o], true
		p.free[o] = r
	}
}

// release takes back what words returned.
func (p *pool) release(w []uint64) {
	if len(w)*8 < leastBlock {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := uintptr(unsafe.Pointer(&w[0]))
	if m, ok := p.large[&w[0]]; ok {
		delete(p.large, &w[0])
		m.free()
		return
	}
	r := p.regions[at&^(regionSize-1)]
	if r == nil {
		return // of the heap
	}
	o := orderOf(len(w))
	i := int(at-uintptr(r.base)) / (leastBlock << o)
	for ; o < poolOrders-1 && r.free[o].has(i^1); o++ {
		r.free[o].drop(i ^ 1)
		i /= 2
	}
	if o < poolOrders-1 {
		p.put(r, o, i)
		return
	}
	p.unmap(r)
}

// unmap gives a free region back.
func (p *pool) unmap(r *region) {
	for o := range p.free {
		if !r.in[o] {
			continue
		}
		for q := &p.free[o]; *q != nil; q = &(*q).next[o] {
			if *q == r {
				*q = r.next[o]
				break
			}
		}
	}
	delete(p.regions, uintptr(r.base))
	mapped.Add(-regionSize)
	_ = unix.Munmap(r.raw) // fails only for what is not a mapping
}

// discard unmaps everything. Nobody may use any of it.
func (p *pool) discard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.regions {
		p.unmap(r)
	}
	for _, m := range p.large {
		m.free()
	}
	p.large = nil
}

func mapRegion() *region {
	raw, err := unix.Mmap(-1, 0, 2*regionSize-unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	skip := -uintptr(unsafe.Pointer(&raw[0])) & (regionSize - 1)
	adviseHuge(raw[skip : skip+regionSize])
	mapped.Add(regionSize)
	return &region{base: unsafe.Pointer(&raw[skip]), raw: raw}
}
