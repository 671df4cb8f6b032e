//go:build unix && !race

package offheap

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"unsafe"

	"warmroute/index/internal/epoch"
)

// Blocks of a pool never overlap, halves are joined again, and all is unmapped in
// the end.
func TestPoolBlocksAreApartAndJoinAgain(t *testing.T) {
	before := mapped.Load()
	var c epoch.Clock
	c.Init()
	var p Pool
	p.Init(&c)
	rng := rand.New(rand.NewPCG(6, 6))
	type block struct {
		words []uint64
		mark  uint64
	}
	var all []block
	for step := range uint64(20_000) {
		if len(all) > 0 && rng.IntN(100) < 50+int(step/400) {
			i := rng.IntN(len(all))
			for _, w := range []int{0, len(all[i].words) / 2, len(all[i].words) - 1} {
				if all[i].words[w] != all[i].mark {
					t.Fatalf("step %d: a block of %d words was written by another", step, len(all[i].words))
				}
			}
			p.Free(all[i].words)
			all[i] = all[len(all)-1]
			all = all[:len(all)-1]
			continue
		}
		w := p.Words(1 << (7 + rng.IntN(13))) // 1 KiB to 4 MiB
		if len(w)*8 >= LeastBlock && uintptr(unsafe.Pointer(&w[0]))%uintptr(min(len(w)*8, 4096)) != 0 {
			t.Fatalf("a block of %d words begins at %p", len(w), &w[0])
		}
		for _, at := range []int{0, len(w) / 2, len(w) - 1} {
			w[at] = step
		}
		all = append(all, block{w, step})
		if len(all) > 200 {
			p.Free(all[0].words)
			all = all[1:]
		}
	}
	for _, b := range all {
		p.Free(b.words)
	}
	p.Trim()
	if len(p.regions) != 0 || len(p.single) != 0 || mapped.Load() != before {
		t.Errorf("%d regions and %d large blocks are left, %d bytes mapped", len(p.regions), len(p.single), mapped.Load()-before)
	}
	p.Words(1 << 12)
	p.Words(1 << 19)
	if p.Close(); mapped.Load() != before {
		t.Errorf("%d bytes are mapped after Close", mapped.Load()-before)
	}
}

// A region is cut without loss: all its smallest blocks are apart, and the next one
// needs another region.
func TestRegionsAreCutWithoutLoss(t *testing.T) {
	before := mapped.Load()
	var c epoch.Clock
	c.Init()
	var p Pool
	p.Init(&c)
	var all [][]uint64
	for i := range uint64(RegionSize / LeastBlock) {
		w := p.Words(LeastBlock / 8)
		w[0], w[len(w)-1] = i, i
		all = append(all, w)
	}
	if got := mapped.Load() - before; len(p.regions) != 1 || got != RegionSize {
		t.Fatalf("%d regions, %d bytes mapped, want one of %d", len(p.regions), got, RegionSize)
	}
	p.Free(all[0])
	if all[0] = p.Words(LeastBlock / 8); len(p.regions) != 1 {
		t.Fatalf("%d regions: the block that was freed is not used again", len(p.regions))
	}
	all[0][0], all[0][LeastBlock/8-1] = 0, 0
	all = append(all, p.Words(LeastBlock/8))
	if len(p.regions) != 2 {
		t.Fatalf("%d regions for a region's blocks and one more", len(p.regions))
	}
	for i, w := range all[:RegionSize/LeastBlock] {
		if w[0] != uint64(i) || w[len(w)-1] != uint64(i) {
			t.Fatalf("block %d was written as block %d", i, w[0])
		}
	}
	for _, w := range all {
		p.Free(w)
	}
	if len(p.regions) != 0 || mapped.Load() != before {
		t.Errorf("%d regions are left", len(p.regions))
	}
}

// Mappings smaller than a page of the pool's, or of no power of two, are on the Go heap
// up to a bound; a freed mapping is used again for the same size, and no other.
func TestWhatIsMapped(t *testing.T) {
	before := mapped.Load()
	var c epoch.Clock
	c.Init()
	var p Pool
	p.Init(&c)
	page := int64(os.Getpagesize())
	grows := func(words int, by int64) []uint64 {
		t.Helper()
		was := mapped.Load()
		w := p.Words(words)
		if got := mapped.Load() - was; got != by {
			t.Errorf("%d words map %d bytes, want %d", words, got, by)
		}
		return w
	}
	grows(LeastBlock/8-1, 0)
	grows(LeastBlock/8+1, 0)
	grows(LeastBlock/8, RegionSize)
	large := grows(mapFrom/8+1, mapFrom+page)
	grows(mapFrom/8-1, 0)
	p.Free(large)
	grows(mapFrom/8+2*int(page)/8, mapFrom+2*page)
	if again := grows(mapFrom/8+2, 0); &again[0] != &large[0] {
		t.Error("a mapping that was freed is not used again")
	}
	grows(RegionSize/8, RegionSize)
	if p.Close(); mapped.Load() != before {
		t.Errorf("%d bytes are mapped after Close", mapped.Load()-before)
	}
}

// Words are rounded up, and their view has as many elements as fit.
func TestViews(t *testing.T) {
	if got := []int{Words[uint32](2), Words[uint32](3), Words[uint64](3), Words[[3]uint64](2)}; !slices.Equal(got, []int{1, 2, 3, 6}) {
		t.Errorf("words %v", got)
	}
	words := make([]uint64, 6)
	if a, b := len(Of[uint32](words)), len(Of[[3]uint64](words)); a != 12 || b != 2 {
		t.Errorf("%d and %d elements", a, b)
	}
}

// Retired memory is not given out again while a lookup runs that may read it, and
// memory that was used before is zero where that is requested.
func TestRetiredMemoryWaitsForLookups(t *testing.T) {
	var c epoch.Clock
	c.Init()
	for _, n := range []int{LeastBlock / 8, RegionSize / 8, RegionSize/8 + 512, mapFrom/8 + 1} {
		var p Pool
		p.Init(&c)
		w := p.Words(n)
		w[0], w[n-1] = 1, 2
		r := c.Enter()
		p.Retire(w)
		p.Trim()
		if w[0] != 1 || w[n-1] != 2 {
			t.Fatalf("%d words: freed while a lookup runs", n)
		}
		other := p.Words(n)
		if &other[0] == &w[0] {
			t.Fatalf("%d words: given out again while a lookup runs", n)
		}
		r.Leave()
		other[0], other[n-1] = 3, 4
		p.Retire(other)
		for range 3 {
			if z := p.Zeroed(n); z[0] != 0 || z[n-1] != 0 {
				t.Fatalf("%d words: %d and %d, want zeros", n, z[0], z[n-1])
			}
		}
		p.Close()
	}
	if Mapped() != 0 {
		t.Errorf("%d bytes are mapped at the end", Mapped())
	}
}
