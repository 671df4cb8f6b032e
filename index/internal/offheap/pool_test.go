//go:build unix && !race

package offheap

import (
	"math/rand/v2"
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

// Retired memory is not given out again while a lookup runs that may read it, and
// memory that was used before is zero where that is asked for.
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
