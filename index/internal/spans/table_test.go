package spans

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/holderset"
	"warmroute/render/testkit/must"
)

// TestTableIsWhatWasPut: a node's spans ascend, join where they can, have exactly the
// holders that were put and not swept, and leave no set behind; what is there is not written again.
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
				first := off // of the blocks with the same holders
				for first > 0 && !slices.ContainsFunc(spans, func(r Span) bool { return int(r.From) == first || int(r.To) == first }) {
					first--
				}
				if set, from := table.At(uint32(node*nodesPerPage), off); set != at.Set || from != first {
					return fmt.Errorf("spans %v at %d: set %d from %d", spans, off, set, from)
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
		before, changed := table.Of(uint32(node*nodesPerPage)), false
		for off := from; off < to; off++ {
			changed = changed || has[node][slot][off] != on
			has[node][slot][off] = on
		}
		table.Put(uint32(node*nodesPerPage), from, to, slot, on)
		if after := table.Of(uint32(node * nodesPerPage)); !changed && len(before) > 0 && &before[0] != &after[0] {
			t.Errorf("%v was written again", before)
		}
	}
	for i := range 3000 {
		from := rnd.IntN(blocks)
		put(rnd.IntN(nodes), rnd.IntN(slots), from, from+1+rnd.IntN(blocks-from), rnd.IntN(2) > 0)
		if i%20 == 0 {
			must.Do(t, check())
		}
	}
	sweep := func(from, to int, end uint32, ended ...int) {
		var mask holderset.Mask
		for _, slot := range ended {
			mask.Put(slot, true)
			for node := from; node <= to; node++ {
				has[node][slot] = [blocks]bool{}
			}
		}
		table.Sweep(&mask, uint32(from*nodesPerPage), end)
		must.Do(t, check())
	}
	sweep(1, 1, nodesPerPage+1, 3, 69)
	sweep(0, 0, nodesPerPage, 7)
	sweep(1, 2, 0, 7, 8)
	var all []int
	for slot := range slots {
		all = append(all, slot)
	}
	sweep(0, nodes-1, 1<<20, all...)
	if sets.Len() != 0 {
		t.Errorf("%d sets are left", sets.Len())
	}
}
