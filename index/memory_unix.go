//go:build unix && !race

package index

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapFrom is the size from which slots are mapped rather than taken from the
// Go heap: below it the page rounding costs more than the collector.
const mapFrom = 64 << 10

// hugeFrom is the size from which huge pages are asked for.
const hugeFrom = 2 << 20

// mapped counts the bytes of slots outside the Go heap in this process.
var mapped atomic.Int64

// memory is an array of slots, outside the Go heap when large: the collector
// neither scans nor counts it.
type memory struct {
	slots []slot
	raw   []byte // the mapping, nil when on the Go heap

	skipped int      // bytes of raw that alignment leaves out
	words   []uint64 // of the pool
}

func newMemory(n int) memory {
	size := n * int(unsafe.Sizeof(slot{}))
	if size < mapFrom {
		return memory{slots: make([]slot, n)}
	}
	page, align := os.Getpagesize(), 0
	if size >= hugeFrom {
		align = hugeFrom // the kernel backs only aligned ranges with huge pages
	}
	size = (size+page-1)/page*page + align
	raw, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil { // out of mappings: the heap still works
		return memory{slots: make([]slot, n)}
	}
	base := unsafe.Pointer(&raw[0])
	if align > 0 {
		adviseHuge(raw)
		base = unsafe.Add(base, (align-int(uintptr(base)%uintptr(align)))%align)
	}
	mapped.Add(int64(size - align)) // what alignment skips is never touched
	return memory{slots: unsafe.Slice((*slot)(base), n), raw: raw, skipped: align}
}

func (m memory) free() {
	if m.raw == nil {
		return
	}
	mapped.Add(-int64(len(m.raw) - m.skipped))
	// Fails only for a range that is not a mapping, which would be our bug and
	// leaves the memory leaked, not wrong.
	_ = unix.Munmap(m.raw)
}
