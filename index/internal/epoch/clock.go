package epoch

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
)

// readersPerBlock readers share one allocation. The clock adds a block when more
// lookups run at once, and keeps it, so the number of readers is the highest
// concurrency seen.
const readersPerBlock = 32

// Clock is the current epoch and the lookups that run. Init comes first.
type Clock struct {
	now   atomic.Uint64 // starts at 1: 0 means idle in a reader
	first readerBlock
	procs uint32 // mask for the starting place of a search
}

type readerBlock struct {
	used    atomic.Uint32 // readers from this one on never ran
	readers [readersPerBlock]Reader
	next    atomic.Pointer[readerBlock]
}

// Reader is one running lookup. Local belongs to it between Enter and Leave, and
// stays as working memory for the next lookup that is this reader.
type Reader struct {
	epoch atomic.Uint64
	Local any
	_     [40]byte // keeps neighbours' epochs off one cache line
}

// Init makes the clock ready.
func (c *Clock) Init() {
	c.now.Store(1)
	n := uint32(1)
	for int(n) < min(runtime.GOMAXPROCS(0), readersPerBlock) {
		n <<= 1
	}
	c.procs = n - 1
}

// Enter announces a lookup. It does not wait: it passes over a busy reader.
func (c *Clock) Enter() *Reader {
	start := rand.Uint32() & c.procs
	for b := &c.first; ; {
		for i := range uint32(readersPerBlock) {
			k := (start + i) % readersPerBlock
			r := &b.readers[k]
			for n := b.used.Load(); k >= n && !b.used.CompareAndSwap(n, k+1); { // before the reader is used: a writer looks as far as used
				n = b.used.Load()
			}
			if r.epoch.Load() == 0 && r.epoch.CompareAndSwap(0, c.now.Load()) {
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

// Leave ends the lookup.
func (r *Reader) Leave() { r.epoch.Store(0) }

// Retire starts a new epoch and returns it. Memory that was unreachable before
// the call is safe to reuse once Oldest is at least that epoch.
func (c *Clock) Retire() (epoch uint64) { return c.now.Add(1) }

// Oldest returns the oldest epoch a running lookup announced, or the current one.
func (c *Clock) Oldest() uint64 {
	low := c.now.Load()
	for b := &c.first; b != nil; b = b.next.Load() {
		for i := range b.used.Load() {
			if v := b.readers[i].epoch.Load(); v != 0 && v < low {
				low = v
			}
		}
	}
	return low
}
