//go:build race || !unix

package index

// pool gives out memory of the Go heap, where the race detector sees it.
type pool struct{}

func (*pool) words(n int) []uint64 { return make([]uint64, n) }

// release spoils the words: a lookup that still read them would be reported as a
// race and match nonsense.
func (*pool) release(w []uint64) {
	for i := range w {
		w[i] = ^uint64(0)
	}
}

func (*pool) discard() {}
