//go:build race || !unix

package offheap

// source is the Go heap, where the race detector observes reads and writes.
type source struct{}

func (*source) take(n int) ([]uint64, bool) { return make([]uint64, n), true }

// free spoils the words: a lookup that still read them would be reported as a
// race and match nonsense.
func (*source) free(w []uint64) {
	for i := range w {
		w[i] = ^uint64(0)
	}
}

func (*source) trim()    {}
func (*source) discard() {}
