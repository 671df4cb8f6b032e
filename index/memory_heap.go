//go:build race || !unix

package index

import "sync/atomic"

var mapped atomic.Int64

// memory is an array of slots on the Go heap, where the race detector sees it.
type memory struct {
	slots []slot
	words []uint64 // of the pool
}

func newMemory(n int) memory { return memory{slots: make([]slot, n)} }

// free spoils the slots: a lookup that still read them would be reported as a
// race and match nonsense.
func (m memory) free() {
	for i := range m.slots {
		m.slots[i] = slot{key: ^uint64(0), val: ^uint64(0), child: ^uint64(0)}
	}
}
