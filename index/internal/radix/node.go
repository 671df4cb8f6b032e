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

// Place is where a block is: node number and offset. 0 is none.
type Place uint64

const offsetBits = 16

// maxNodes is the largest number of a node, so that an index can hold a Place.
const maxNodes = 1<<(hashtable.PlaceBits-offsetBits) - 1

// At is the block of a node at an offset.
func At(node uint32, off int) Place { return Place(node)<<offsetBits | Place(off) }

// Node is the number of the node.
func (p Place) Node() uint32 { return uint32(p >> offsetBits) }

// Offset is the block's offset in its node.
func (p Place) Offset() int { return int(p & (1<<offsetBits - 1)) }

// node is a stretch of a chain of blocks. The blocks that follow one of them, other
// than the next in the array, begin nodes of their own.
type node struct {
	state atomic.Uint64
	keys  atomic.Pointer[uint64] // the first of capacity keys
	runs  atomic.Pointer[uint64] // see Run; read when state has the flag

	// The writer's.
	parent     Place  // the block before the first, 0 = the first begins prompts; readers too
	depth      uint32 // blocks before the first; readers too
	child      uint32 // one of the nodes behind blocks of this one
	next, prev uint32 // among the nodes behind the parent's blocks
	tree       uint16
	tick       uint16 // of the last store, in minutes
	capacity   uint16 // of keys; never less than it was, so that no reader's state has more blocks
	published  uint16 // keys[:published] were visible to readers and are never overwritten
	deepest    int16  // no node follows a block behind this offset, -1 = none follows any
	plain      bool   // the blocks' names are their keys; else the names are behind the capacity for keys
	truncated  bool   // blocks were taken off the end since runs were written: readers may take them for those of what was there

	_ [4]byte // to a cache line
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

// array is the first n keys, or all there is capacity for.
func (nd *node) array(n int) []uint64 { return unsafe.Slice(nd.keys.Load(), n) }

func (nd *node) key(off int) uint64 { return nd.array(off + 1)[off] }

// The rest is for the writer.

func (nd *node) len() int { return lenOf(nd.state.Load()) }

// all is the keys of the blocks.
func (nd *node) all() []uint64 { return nd.array(nd.len()) }

// width is the number of words of a block.
func (nd *node) width() int {
	if nd.plain {
		return 1
	}
	return 2
}

// names is what those who stored the first n blocks first called them.
func (nd *node) names(n int) []uint64 {
	if nd.plain {
		return nd.array(n)
	}
	return unsafe.Slice((*uint64)(unsafe.Add(unsafe.Pointer(nd.keys.Load()), 8*int(nd.capacity))), n)
}

func (nd *node) name(off int) uint64 { return nd.names(off + 1)[off] }

// checkpoints calls f for the offsets from … to - 1 that are checkpoints, one in
// every along a prompt.
func (nd *node) checkpoints(every, from, to int, f func(off int)) {
	first := every - 1 - (int(nd.depth)+from)%every
	for off := from + first; off < to; off += every {
		f(off)
	}
}

// commonKeys is how many keys of two chains are equal from their start. Keys are
// chained: where two are equal, so are all before them.
func commonKeys(have []uint64, want []prefixhash.Key) int {
	n := min(len(have), len(want))
	if n == 0 {
		return 0
	}
	have, want = have[:n], want[:n]
	if have[n-1] == uint64(want[n-1]) {
		return n
	}
	lo, hi := -1, n-1 // equal up to lo, different from hi on
	for hi-lo > fan {
		d, equal := hi-lo, 0
		for i := 1; i < fan; i++ { // without a branch on what is found: the loads overlap
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

// fan is how many parts a search is split in at a time.
const fan = 16
