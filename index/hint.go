package index

import (
	"sync/atomic"

	"warmroute/prefixhash"
)

// hint remembers the last lookup of a conversation: where it first lost a
// holder, and how long it was. The next turn repeats the prompt of the last one,
// whose replica by then holds all of it, so holders end near both places. A hint
// only saves probes; a wrong one costs four.
type hint struct{ lost, blocks int32 }

// hintCount is how many conversations are remembered, in 256 KiB.
const hintCount = 1 << 15

// hints are packed: 16 bits of the key, so that others' hints are recognised,
// and 24 bits for each place.
type hints [hintCount]uint64

// hintDepths are the blocks a conversation is recognised by: deep enough to
// tell it from others that begin alike, the deeper the better.
var hintDepths = [...]int{511, 127, 31, 0}

func (x *Index) hintFor(keys []prefixhash.Key) hint {
	for _, depth := range hintDepths {
		if depth >= len(keys) {
			continue
		}
		k := uint64(keys[depth])
		if v := atomic.LoadUint64(&x.hints[k%hintCount]); v>>48 == k>>48 && v != 0 {
			return hint{int32(v >> 24 & (1<<24 - 1)), int32(v & (1<<24 - 1))}
		}
	}
	return hint{}
}

// remember notes how the lookup went, under every depth the prompt has.
func (x *Index) remember(keys []prefixhash.Key, was, is hint) {
	if was == is || len(keys) >= 1<<24 {
		return
	}
	for _, depth := range hintDepths {
		if depth < len(keys) {
			k := uint64(keys[depth])
			atomic.StoreUint64(&x.hints[k%hintCount], k>>48<<48|uint64(is.lost)<<24|uint64(is.blocks))
		}
	}
}
