package offheap

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"warmroute/index/internal/epoch"
)

// Requests of a power of two of bytes from LeastBlock to RegionSize are blocks of
// shared regions.
const (
	RegionSize = 2 << 20
	LeastBlock = 4 << 10
)

// mapFrom is the size, in bytes, from which other requests are mapped.
const mapFrom = 64 << 10

// mapped counts the bytes that this process has mapped.
var mapped atomic.Int64

// Mapped returns how many bytes all pools of this process have outside the Go heap.
func Mapped() int64 { return mapped.Load() }

// Pool gives out words. Init comes first; any goroutine may call its methods.
type Pool struct {
	mu sync.Mutex
	source
	retired epoch.Limbo[[]uint64]
}

// Init sets the clock of the lookups that read the memory.
func (p *Pool) Init(c *epoch.Clock) { p.retired.Init(c) }

// Words returns n words with any content.
func (p *Pool) Words(n int) []uint64 {
	w, _ := p.words(n)
	return w
}

// Zeroed returns n words that are zero.
func (p *Pool) Zeroed(n int) []uint64 {
	w, fresh := p.words(n)
	if !fresh {
		clear(w)
	}
	return w
}

// words also reports whether the words are new, so zero.
func (p *Pool) words(n int) (w []uint64, fresh bool) {
	if !offHeap(n * 8) {
		return make([]uint64, n), true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, fresh = p.take(n); w == nil { // out of mappings: the Go heap still works
		return make([]uint64, n), true
	}
	return w, fresh
}

// shared reports whether blocks of a region have a size.
func shared(size int) bool {
	return size >= LeastBlock && size <= RegionSize && size&(size-1) == 0
}

func offHeap(size int) bool { return shared(size) || size >= mapFrom }

// Free takes back unused words.
func (p *Pool) Free(w []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(w)
}

// Retire takes back words that no lookup can reach any more. They are freed when no
// lookup can be reading them: now or in a later call.
func (p *Pool) Retire(w []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired.Put(w)
	p.retired.Reclaim(p.free)
}

// Trim returns memory that is kept for later.
func (p *Pool) Trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired.Reclaim(p.free)
	p.trim()
}

// Close waits for the running lookups and returns all memory. None of it
// may be used afterwards.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.retired.Reclaim(p.free); p.retired.Len() > 0; p.retired.Reclaim(p.free) {
		runtime.Gosched()
	}
	p.discard()
}

// Of views words as an array of T, which has no pointers and whose size is a
// multiple of a word's.
func Of[T any](words []uint64) []T {
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8/int(unsafe.Sizeof(t)))
}

// Words returns how many words n values of T take.
func Words[T any](n int) int {
	var t T
	return (n*int(unsafe.Sizeof(t)) + 7) / 8
}
