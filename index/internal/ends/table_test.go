package ends

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/holderset"
	"warmroute/index/internal/radix"
	"warmroute/render/testkit/must"
)

// TestTableIsWhatWasPut: a node's spans ascend, join where they can, have exactly the
// holders that were put, and leave no set behind.
func TestTableIsWhatWasPut(t *testing.T) {
	var clock epoch.Clock
	clock.Init()
	var sets holderset.Sets
	sets.Init(&clock)
	var table Table
	table.Init(&sets)
	rnd := rand.New(rand.NewPCG(1, 2))
	const nodes, slots, blocks = 3, 70, 40
	var has [nodes][slots][blocks]bool
	check := func() error {
		for node := range nodes {
			spans := table.Of(uint32(node * nodesPerPage))
			for off := range blocks {
				var at Span
				for i, r := range spans {
					if i > 0 && (r.From < spans[i-1].To || r.From == spans[i-1].To && r.Set == spans[i-1].Set) || r.From >= r.To {
						return fmt.Errorf("spans %v", spans)
					}
					if off >= int(r.From) && off < int(r.To) {
						at = r
					}
				}
				for slot := range slots {
					if got := sets.Has(at.Set, slot); got != has[node][slot][off] {
						return fmt.Errorf("node %d, slot %d, block %d: %v", node, slot, off, got)
					}
				}
			}
		}
		return nil
	}
	put := func(node, slot, from, to int, on bool) {
		for off := from; off < to; off++ {
			has[node][slot][off] = on
		}
		table.put(uint32(node*nodesPerPage), from, to, slot, on)
	}
	for i := range 3000 {
		from := rnd.IntN(blocks)
		put(rnd.IntN(nodes), rnd.IntN(slots), from, from+1+rnd.IntN(blocks-from), rnd.IntN(2) > 0)
		if i%20 == 0 {
			must.Do(t, check())
		}
	}
	for node := range nodes {
		for slot := range slots {
			put(node, slot, 0, blocks, false)
		}
	}
	must.Do(t, check())
	if sets.Len() != 0 {
		t.Errorf("%d sets are left", sets.Len())
	}
}

func TestBitmap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var b bitmap
	var want [300]bool
	next := func(i int, in bool) int {
		for ; i < len(want); i++ {
			if want[i] == in {
				return i
			}
		}
		if in {
			return -1
		}
		return i
	}
	for range 3000 {
		i := rnd.IntN(len(want))
		switch rnd.IntN(40) {
		case 0:
			b.cut(i)
			for ; i < len(want); i++ {
				want[i] = false
			}
		default:
			on := rnd.IntN(3) > 0
			b.put(i, on)
			want[i] = on
		}
		i = rnd.IntN(len(want))
		if b.has(i) != want[i] || b.empty() != (next(0, true) < 0) || b.next(i, true) != next(i, true) {
			t.Fatalf("at %d: %v, %v, next %d; want %v, next %d", i, b.has(i), b.empty(), b.next(i, true), want[i], next(i, true))
		}
		if got, want := b.next(i, false), next(i, false); got != want && want < 300 {
			t.Fatalf("at %d: next that is not in it %d, want %d", i, got, want)
		}
	}
}

// TestNarrowLeavesTheLastEnd: whatever the spans of a path's nodes, the holders' depths and the limit,
// a holder's hit is its last end within both, and holders without one stay to be decided.
func TestNarrowLeavesTheLastEnd(t *testing.T) {
	var clock epoch.Clock
	clock.Init()
	var sets holderset.Sets
	sets.Init(&clock)
	const slots, blocks = 130, 30
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		var table Table
		table.Init(&sets)
		var has [slots][blocks]bool
		for range rnd.IntN(200) {
			slot, from := rnd.IntN(slots), rnd.IntN(blocks)
			to := from + 1 + rnd.IntN(blocks-from)
			table.put(0, from, to, slot, true)
			for off := from; off < to; off++ {
				has[slot][off] = true
			}
		}
		var path []radix.Stretch // of one node again and again
		length := int32(0)
		for range rnd.IntN(4) {
			path = append(path, radix.Stretch{Depth: length, Len: 1 + rnd.Int32N(blocks)})
			length += path[len(path)-1].Len
		}
		limit, lose := rnd.Int32N(length+2), rnd.Int32N(2)
		decide, depth := make([]uint64, 3), make([]int32, 3*64)
		var want [slots]int32 // -1: stays
		var asked [slots]bool
		for slot := range slots {
			depth[slot], want[slot] = rnd.Int32N(length+1), -1
			if asked[slot] = rnd.IntN(3) > 0; asked[slot] {
				decide[slot>>6] |= 1 << (slot & 63)
			}
			for _, s := range path {
				for off := range s.Len {
					if at := s.Depth + off + 1; has[slot][off] && at <= min(depth[slot], limit) {
						want[slot] = at - lose
					}
				}
			}
		}
		before := slices.Clone(depth)
		table.Narrow(path, limit, lose, decide, depth)
		for slot := range slots {
			left := decide[slot>>6]>>(slot&63)&1 != 0
			if hit := asked[slot] && want[slot] >= 0; left != (asked[slot] && !hit) || hit && depth[slot] != want[slot] || !hit && depth[slot] != before[slot] {
				t.Fatalf("seed %d: slot %d of depth %d has %d, to be decided: %v; want %d", seed, slot, before[slot], depth[slot], left, want[slot])
			}
		}
	}
}
