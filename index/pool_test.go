//go:build unix && !race

package index

import (
	"math/rand/v2"
	"testing"
	"unsafe"
)

// Blocks of a pool never overlap, halves are joined again, and all is unmapped in
// the end.
func TestPoolBlocksAreApartAndJoinAgain(t *testing.T) {
	before := mapped.Load()
	var p pool
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
			p.release(all[i].words)
			all[i] = all[len(all)-1]
			all = all[:len(all)-1]
			continue
		}
		w := p.words(1 << (7 + rng.IntN(13))) // 1 KiB to 4 MiB
		if len(w)*8 >= leastBlock && uintptr(unsafe.Pointer(&w[0]))%uintptr(min(len(w)*8, 4096)) != 0 {
			t.Fatalf("a block of %d words begins at %p", len(w), &w[0])
		}
		for _, at := range []int{0, len(w) / 2, len(w) - 1} {
			w[at] = step
		}
		all = append(all, block{w, step})
		if len(all) > 200 {
			p.release(all[0].words)
			all = all[1:]
		}
	}
	for _, b := range all {
		p.release(b.words)
	}
	if len(p.regions) != 0 || len(p.large) != 0 || mapped.Load() != before {
		t.Errorf("%d regions and %d large blocks are left, %d bytes mapped", len(p.regions), len(p.large), mapped.Load()-before)
	}
	p.words(1 << 12)
	p.words(1 << 19)
	if p.discard(); mapped.Load() != before {
		t.Errorf("%d bytes are mapped after discard", mapped.Load()-before)
	}
}
