//go:build unix && !race

package offheap

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeFrom is the size from which huge pages are requested: the kernel uses them
// only for ranges that are aligned to their size.
const hugeFrom = 2 << 20

// mapping is memory of the kernel. Its first skipped bytes, and perhaps some at
// the end, are there for alignment and never touched.
type mapping struct {
	raw  []byte
	base unsafe.Pointer
	size int
}

// mapMemory maps at least size bytes, or returns false if there are too many
// mappings.
func mapMemory(size int) (m mapping, ok bool) {
	align := 0
	if size = wholePages(size); size >= hugeFrom {
		align = hugeFrom - os.Getpagesize()
	}
	raw, err := unix.Mmap(-1, 0, size+align, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return mapping{}, false
	}
	m = mapping{raw, unsafe.Pointer(&raw[0]), size}
	if align > 0 {
		skip := -uintptr(m.base) & (hugeFrom - 1)
		m.base = unsafe.Add(m.base, skip)
		adviseHuge(raw[skip : int(skip)+size])
	}
	mapped.Add(int64(size))
	return m, true
}

// words returns the first n words.
func (m *mapping) words(n int) []uint64 { return unsafe.Slice((*uint64)(m.base), n) }

func (m *mapping) unmap() {
	mapped.Add(-int64(m.size))
	// Munmap fails only for a range that is not a mapping. That would be our
	// bug, and would leak the memory.
	_ = unix.Munmap(m.raw)
}

func wholePages(size int) int {
	page := os.Getpagesize()
	return (size + page - 1) / page * page
}
