package radix

import (
	"sync/atomic"
	"unsafe"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/prefixhash"
)

// MaxNode bounds the blocks of a node: an offset has 16 bits in a Place, and an
// array that is copied to grow stays within 128 KiB.
const MaxNode = 1 << 14

// Place is a block's node and offset. 0 is none.
type Place uint64

const offsetBits = 16

// maxNodes is the largest number of a node: an index must hold its Places.
const maxNodes = 1<<(hashtable.PlaceBits-offsetBits) - 1

// At returns the block of a node at an offset.
func At(node uint32, off int) Place { return Place(node)<<offsetBits | Place(off) }

// Node returns the number of the node.
func (p Place) Node() uint32 { return uint32(p >> offsetBits) }

// Offset returns the block's offset in its node.
func (p Place) Offset() int { return int(p & (1<<offsetBits - 1)) }

// node is a stretch of a chain of blocks. Of the blocks that follow one of them, only
// the next in the array is in the same node; the others begin nodes of their own.
type node struct {
	state atomic.Uint64
	keys  atomic.Pointer[uint64] // the first of capacity keys
	runs  atomic.Pointer[uint64] // see Run; read when state has the flag

	// The writer's.
	parent Place  // the block before the first, 0 = the first begins prompts; readers too
	depth  uint32 // blocks before the first; readers too
	family
	tree      uint16
	tick      uint16 // of the last store, in minutes
	capacity  uint16 // of keys; never shrinks, so that no reader's state has more blocks
	published uint16 // keys[:published] were visible to readers and are never overwritten
	deepest   int16  // no node follows a block behind this offset, -1 = none follows any
	plain     bool   // the blocks' hashes are their keys; else the hashes are behind the capacity for keys
	truncated bool   // blocks were taken off the end since runs were written: readers may take other blocks for them
	mark      uint32 // of the first block, see Tree.mark; readers too
}

// family has the neighbours of a node, by number.
type family struct {
	child      uint32 // one of the nodes behind blocks of this one
	next, prev uint32 // among the nodes behind the parent's blocks
}

// A state holds the number of blocks, and either the set that holds all of them or
// stateRuns. Its version counts the times that blocks were taken off the end.
const (
	stateLen          = 1<<offsetBits - 1
	stateSetShift     = offsetBits
	stateSet          = holderset.MaxID << stateSetShift
	stateRuns         = 1 << 40
	stateVersionShift = 41
	stateVersion      = 1 << stateVersionShift
)

func lenOf(state uint64) int                  { return int(state & stateLen) }
func setOf(state uint64) holderset.ID         { return holderset.ID(state & stateSet >> stateSetShift) }
func versionOf(state uint64) uint64           { return state &^ (stateVersion - 1) }
func newState(n int, set holderset.ID) uint64 { return uint64(n) | uint64(set)<<stateSetShift }

// shortened returns a state after blocks were taken off the end.
func shortened(state uint64, n int) uint64 { return state&^stateLen + stateVersion | uint64(n) }

// array returns the first n keys. n is at most the capacity.
func (nd *node) array(n int) []uint64 { return unsafe.Slice(nd.keys.Load(), n) }

func (nd *node) key(off int) uint64 { return nd.array(off + 1)[off] }

// Only the writer calls the functions below.

func (nd *node) len() int { return lenOf(nd.state.Load()) }

// all returns the keys of the blocks.
func (nd *node) all() []uint64 { return nd.array(nd.len()) }

// width returns the number of words of a block.
func (nd *node) width() int {
	if nd.plain {
		return 1
	}
	return 2
}

// hashes returns the hashes of the first n blocks, by the holder that stored each
// first.
func (nd *node) hashes(n int) []uint64 {
	if nd.plain {
		return nd.array(n)
	}
	return unsafe.Slice((*uint64)(unsafe.Add(unsafe.Pointer(nd.keys.Load()), 8*int(nd.capacity))), n)
}

func (nd *node) hash(off int) uint64 { return nd.hashes(off + 1)[off] }

// checkpoints calls f for the offsets from … to - 1 that are checkpoints, one in
// every along a prompt.
func (nd *node) checkpoints(every, from, to int, f func(off int)) {
	first := every - 1 - (int(nd.depth)+from)%every
	for off := from + first; off < to; off += every {
		f(off)
	}
}

// commonKeys returns how many keys of two chains are equal from their start. Keys are
// chained: if two are equal, so are all before them.
func commonKeys(have []uint64, want []prefixhash.Key) int {
	n := min(len(have), len(want))
	if n == 0 {
		return 0
	}
	have, want = have[:n], want[:n]
	if have[n-1] == uint64(want[n-1]) {
		return n
	}
	lo, hi := -1, n-1 // the keys up to lo are equal, from hi on they differ
	for hi-lo > fan {
		d, equal := hi-lo, 0
		for i := 1; i < fan; i++ { // without a branch on the result: the loads overlap
			p := lo + d*i/fan
			if have[p] == uint64(want[p]) {
				equal++
			}
		}
		lo, hi = lo+d*equal/fan, lo+d*(equal+1)/fan
	}
	for lo+1 < hi && have[lo+1] == uint64(want[lo+1]) {
		lo++
	}
	return lo + 1
}

// equalKeys is commonKeys for keys that may not be chained.
func equalKeys(have []uint64, want []prefixhash.Key) (n int) {
	for n < min(len(have), len(want)) && have[n] == uint64(want[n]) {
		n++
	}
	return n
}

// fan is the number of parts into which each step splits a search.
const fan = 16
