package index

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// readersPerBlock readers share one allocation; blocks are added when more
// lookups run at once and are kept, so their number is the highest concurrency
// seen.
const readersPerBlock = 32

// epochs tells writers when no lookup can still see what they took away.
//
// A lookup announces the epoch it starts in; a writer first makes the thing
// unreachable, then advances the epoch with retire. When every announced epoch
// is at least the returned tag, nobody can hold the thing any more.
type epochs struct {
	now   atomic.Uint64 // starts at 1: 0 means idle in a reader
	first readerBlock
	procs uint32 // mask for the starting place of a search

	pool pool // of what is read at random

	mu      sync.Mutex
	garbage []garbage
	spare   []memory // freed arrays, to be used again: fresh pages cost more than clearing
}

// maxSpare is how many freed arrays are kept: one writer at a time replaces
// arrays of one size again and again.
const maxSpare = 2

type garbage struct {
	tag uint64
	mem memory
}

type readerBlock struct {
	used    atomic.Uint32 // readers from here on never ran
	readers [readersPerBlock]reader
	next    atomic.Pointer[readerBlock]
}

// reader is one running lookup: its announced epoch and its scratch memory.
type reader struct {
	epoch atomic.Uint64
	scratch
	_ [64]byte // keeps neighbours' epochs off one cache line
}

func (e *epochs) init() {
	e.now.Store(1)
	n := uint32(1)
	for int(n) < min(runtime.GOMAXPROCS(0), readersPerBlock) {
		n <<= 1
	}
	e.procs = n - 1
}

// enter announces a lookup. It does not wait: a busy reader is passed over.
func (e *epochs) enter() *reader {
	start := rand.Uint32() & e.procs
	for b := &e.first; ; {
		for i := range uint32(readersPerBlock) {
			k := (start + i) % readersPerBlock
			r := &b.readers[k]
			for n := b.used.Load(); k >= n && !b.used.CompareAndSwap(n, k+1); { // first: a writer looks as far
				n = b.used.Load()
			}
			if r.epoch.Load() == 0 && r.epoch.CompareAndSwap(0, e.now.Load()) {
				return r
			}
		}
		next := b.next.Load()
		if next == nil {
			b.next.CompareAndSwap(nil, new(readerBlock))
			next = b.next.Load()
		}
		b = next
	}
}

func (r *reader) leave() { r.epoch.Store(0) }

// retire starts a new epoch. What was unreachable before the call is safe to
// reuse once passed(tag).
func (e *epochs) retire() (tag uint64) { return e.now.Add(1) }

// oldest is the oldest epoch a running lookup announced.
func (e *epochs) oldest() uint64 {
	low := e.now.Load()
	for b := &e.first; b != nil; b = b.next.Load() {
		for i := range b.used.Load() {
			if v := b.readers[i].epoch.Load(); v != 0 && v < low {
				low = v
			}
		}
	}
	return low
}

// discard frees unreachable memory, now or in a later call, when no lookup can
// be reading it.
func (e *epochs) discard(m memory) {
	tag := e.retire()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.garbage = append(e.garbage, garbage{tag: tag, mem: m})
	e.collect()
}

// collect frees what can be freed; the caller holds e.mu.
func (e *epochs) collect() {
	low, kept := e.oldest(), 0
	for _, g := range e.garbage {
		if g.tag <= low {
			e.recycle(g.mem)
			continue
		}
		e.garbage[kept] = g
		kept++
	}
	clear(e.garbage[kept:])
	e.garbage = e.garbage[:kept]
}

func (e *epochs) recycle(m memory) {
	switch {
	case m.words != nil:
		e.pool.release(m.words)
	case len(m.slots) < 4096: // small ones are the Go heap's
		m.free()
	case len(e.spare) == maxSpare:
		e.spare[0].free()
		e.spare = append(append(e.spare[:0], e.spare[1:]...), m)
	default:
		e.spare = append(e.spare, m)
	}
}

// memory returns at least n zeroed slots.
func (e *epochs) memory(n int) memory {
	const size = int(unsafe.Sizeof(slot{}))
	if n*size >= leastBlock && n*size <= regionSize {
		words := e.pool.words(1 << bits.Len(uint(n*size-1)) / 8)
		clear(words)
		return memory{slots: unsafe.Slice((*slot)(unsafe.Pointer(&words[0])), len(words)*8/size), words: words}
	}
	e.mu.Lock()
	for i, m := range e.spare {
		if len(m.slots) == n {
			e.spare = append(e.spare[:i], e.spare[i+1:]...)
			e.mu.Unlock()
			clear(m.slots)
			return m
		}
	}
	e.mu.Unlock()
	return newMemory(n)
}

// release frees the spare arrays. The caller holds e.mu.
func (e *epochs) release() {
	for _, m := range e.spare {
		m.free()
	}
	e.spare = nil
}

// drain waits for the running lookups and frees everything discarded.
func (e *epochs) drain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.collect(); len(e.garbage) > 0; e.collect() {
		runtime.Gosched()
	}
	e.release()
	e.pool.discard()
}
