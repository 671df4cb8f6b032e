package radix

import (
	"unsafe"

	"warmroute/index/internal/offheap"
)

// arrays are the memory of nodes' keys and hashes. They reuse what nodes have left,
// so churn is no work for the collector.
type arrays struct {
	pool  *offheap.Pool
	free  [maxClass][]*uint64 // small ones, by class
	words int                 // in free
}

// maxClass is the first class that the pool has itself, of 4 KiB: smaller arrays are
// the Go heap's. maxSpareWords bounds the spare ones of these: 8 MiB.
const (
	maxClass      = 12
	maxSpareWords = 1 << 20
)

// arraySize returns the smallest array of at least n words, and its class. Small
// arrays have sizes that the Go heap has too, in steps of a half and a third; others
// are powers of two.
func arraySize(n int) (words, class int) {
	for words = 8; words < n; class++ {
		switch {
		case class >= maxClass:
			words *= 2
		case words&(words-1) == 0:
			words += words / 2
		default:
			words += words / 3
		}
	}
	return words, class
}

// take returns an array of at least n words.
func (a *arrays) take(n int) (p *uint64, words int) {
	words, class := arraySize(n)
	if class >= maxClass {
		return &a.pool.Words(words)[0], words
	}
	if list := a.free[class]; len(list) > 0 {
		p = list[len(list)-1]
		a.free[class] = list[:len(list)-1]
		a.words -= words
		return p, words
	}
	return unsafe.SliceData(make([]uint64, words)), words
}

// put keeps an array without readers.
func (a *arrays) put(p *uint64, words int) {
	_, class := arraySize(words)
	switch {
	case p == nil:
	case class >= maxClass:
		a.pool.Free(unsafe.Slice(p, words))
	case a.words+words <= maxSpareWords:
		a.free[class] = append(a.free[class], p)
		a.words += words
	}
}

// trim drops the spare arrays.
func (a *arrays) trim() { *a = arrays{pool: a.pool} }
