package index

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTwins: a holder that announces blocks by several hashes of one key has them until every
// announcement of every hash was taken back, in any order, at the beginning of a prompt and
// behind other blocks, whoever stored them first. The holder is in doubt as long as it is followed.
func TestTwins(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		x := newFixture(t, Options{})
		if seed%2 == 0 { // the nodes know the hashes of another holder
			other := x.f.stored(b, TierGPU, x.all()[:12])
			for i := range other.Hashes {
				other.Hashes[i] += 1 << 40
			}
			x.send(b, x.Begin(b), other)
		}
		inc := x.Begin(a)
		held := map[[2]uint64]int{} // announcements by block and variant
		event := func(kind EventType, block int, variant uint64) Event {
			ev := x.f.stored(a, TierGPU, []int{block})
			if kind == Removed {
				ev = x.f.removed(a, TierGPU, block)
			}
			ev.Hashes[0] += variant << 32
			ev.Parent += variant << 32
			return ev
		}
		for block := range 8 { // each variant is a chain of its own
			for variant := range uint64(3) {
				for range 1 + r.IntN(2) {
					x.send(a, inc, event(Stored, block, variant))
					held[[2]uint64{uint64(block), variant}]++
				}
			}
		}
		x.wantReported(a, 8)
		if n := x.Holdings(a); n != 8 {
			t.Fatalf("seed %d: %d blocks are held, want 8", seed, n)
		}
		for block := 7; block >= 0; block-- {
			var order []uint64
			for variant := range uint64(3) {
				order = append(order, slices.Repeat([]uint64{variant}, held[[2]uint64{uint64(block), variant}])...)
			}
			r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			for i, variant := range order {
				x.wantReported(a, int32(block+1))
				res := x.send(a, inc, event(Removed, block, variant))
				if last := i == len(order)-1; res.Unknown != 0 || (res.Removed == 1) != last {
					t.Fatalf("seed %d, block %d, removal %d of %v: %+v", seed, block, i, order, res)
				}
			}
			if err := x.check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		x.wantReported(a, 0)
		if sh := x.allShards()[0]; len(sh.copies) > 0 {
			t.Fatalf("seed %d: copies are left: %v", seed, sh.copies)
		} else if slot, ok := sh.slots.Of(int32(x.ID(a))); ok && len(sh.info[slot].twins.of)+len(sh.info[slot].twins.at) > 0 {
			t.Fatalf("seed %d: twins are left: %+v", seed, sh.info[slot].twins)
		}
		if !x.Grouped(a) {
			t.Fatal("the holder is not in doubt")
		}
	}
}

// TestTwinsBehindAndBelow: blocks follow a block by any of its hashes, and tiers below the GPU
// know all of them.
func TestTwinsBehindAndBelow(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	second := func(ev Event) Event {
		for i := range ev.Hashes {
			ev.Hashes[i] += 1 << 32
		}
		ev.Parent += 1 << 32
		return ev
	}
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()[:4]), second(x.f.stored(a, TierGPU, x.all()[:4])))
	x.send(a, inc, second(x.f.stored(a, TierGPU, x.all()[4:6])))
	x.wantReported(a, 6)
	x.send(a, inc, x.f.stored(a, TierCPU, x.all()[:4]), second(x.f.stored(a, TierCPU, x.all()[:4])))
	if res := x.send(a, inc, x.f.removed(a, TierCPU, 0, 1, 2, 3)); res.Unknown != 0 || res.Removed != 0 {
		t.Errorf("%+v, want copies to be left in CPU memory", res)
	}
	if res := x.send(a, inc, second(x.f.removed(a, TierCPU, 0, 1, 2, 3))); res.Unknown != 0 || res.Removed != 4 {
		t.Errorf("%+v, want 4 blocks removed from CPU memory", res)
	}
	for i := range uint64(maxTwins + 100) { // a publisher that never ends is bounded
		ev := x.f.stored(a, TierGPU, x.all()[:1])
		ev.Hashes[0] = 1<<50 + i
		x.send(a, inc, ev)
	}
	sh := x.allShards()[0]
	if n := len(sh.info[0].twins.of); n > maxTwins {
		t.Errorf("%d twins, want at most %d", n, maxTwins)
	}
}
