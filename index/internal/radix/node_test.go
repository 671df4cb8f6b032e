package radix

import (
	"slices"
	"testing"
	"unsafe"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/offheap"
	"warmroute/prefixhash"
)

// Keys of two chains are equal up to where they part, and different behind it.
func TestCommonKeysIsTheLengthInCommon(t *testing.T) {
	const most = 300
	have := make([]uint64, most)
	for i := range have {
		have[i] = uint64(i+1) * hashtable.Golden
	}
	for n := 0; n <= most; n++ {
		for parts := 0; parts <= n; parts++ {
			want := make([]prefixhash.Key, n)
			for i := range want {
				want[i] = prefixhash.Key(have[i])
				if i >= parts {
					want[i]++
				}
			}
			common := 0
			for common < n && have[common] == uint64(want[common]) {
				common++
			}
			if got := commonKeys(have[:n], want); got != common || common != parts {
				t.Fatalf("%d keys that part at %d: %d", n, parts, got)
			}
			if got := commonKeys(have, want); got != parts { // the node is longer
				t.Fatalf("%d of %d keys that part at %d: %d", n, most, parts, got)
			}
			if got := commonKeys(have[:n/2], want); got != min(n/2, parts) { // the prompt is longer
				t.Fatalf("%d keys of a node of %d that part at %d: %d", n, n/2, parts, got)
			}
		}
	}
}

// Checkpoints are the blocks that end so many blocks of a prompt, wherever their
// nodes begin.
func TestCheckpointsAreEvenlyAlongThePrompt(t *testing.T) {
	const every = 64
	for depth := range 3*every + 2 {
		nd := node{depth: uint32(depth)}
		for _, span := range [][2]int{{0, 0}, {0, 1}, {0, every - 1}, {0, every}, {0, 200}, {1, 64}, {63, 64}, {64, 65}, {37, 300}, {150, 151}} {
			var want, got []int
			for off := span[0]; off < span[1]; off++ {
				if (depth+off+1)%every == 0 {
					want = append(want, off)
				}
			}
			nd.checkpoints(every, span[0], span[1], func(off int) { got = append(got, off) })
			if !slices.Equal(got, want) {
				t.Fatalf("depth %d, offsets %v: %v, want %v", depth, span, got, want)
			}
		}
	}
}

// An array has the size of a class, which leads back to it, and at most half more
// than was requested.
func TestArraySizesAreClasses(t *testing.T) {
	for n := 1; n <= 2*MaxNode; n++ {
		words, class := arraySize(n)
		again, same := arraySize(words)
		most := n * 3 / 2 // of small ones
		if class >= maxClass {
			most = 2 * n
		}
		if words < n || n > 8 && words > most+1 || again != words || same != class || (class < maxClass) != (words*8 < offheap.LeastBlock) || class >= maxClass && words&(words-1) != 0 {
			t.Fatalf("%d words in %d of class %d, which are %d of %d", n, words, class, again, same)
		}
	}
}

func TestANodeIsACacheLine(t *testing.T) {
	if n := unsafe.Sizeof(node{}); n != 64 {
		t.Errorf("%d bytes, want 64", n)
	}
}
