//go:build race || !unix

package offheap

// source is the Go heap, where the race detector observes reads and writes.
type source struct{}

func (*source) take(n int) ([]uint64, bool) { return make([]uint64, n), true }

// free overwrites the words: the race detector would report a lookup that
// still read them, and the lookup would match nonsense.
func (*source) free(w []uint64) {
	for i := range w {
		w[i] = ^uint64(0)
	}
}

func (*source) trim()    {}
func (*source) discard() {}
