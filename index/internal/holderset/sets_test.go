package holderset

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"warmroute/index/internal/epoch"
)

// TestSetsAreInterned: a set is what was toggled, equal sets have equal numbers,
// and a set that nobody refers to is none any more.
func TestSetsAreInterned(t *testing.T) {
	var clock epoch.Clock
	clock.Init()
	var sets Sets
	sets.Init(&clock)
	var slots Slots
	slots.Init(&clock)
	for holder := range int32(200) {
		if slot, ok := slots.Take(holder); !ok || slot != int(holder) {
			t.Fatalf("holder %d has slot %d", holder, slot)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var ids [20]ID
	var want [20]map[int]bool
	for i := range want {
		want[i] = map[int]bool{}
	}
	for n := range 5000 {
		i, slot := rnd.IntN(len(ids)), rnd.IntN(6)*39
		to, ok := sets.Toggle(ids[i], slot)
		if !ok {
			t.Fatal("no room")
		}
		sets.Release(ids[i], 1)
		ids[i] = to
		if want[i][slot] = !want[i][slot]; !want[i][slot] {
			delete(want[i], slot)
		}
		got := map[int]bool{}
		sets.Each(to, func(slot int) { got[slot] = true })
		if !maps.Equal(got, want[i]) || sets.Size(to) != len(got) {
			t.Fatalf("%v, want %v", got, want[i])
		}
		for slot := range 200 {
			if sets.Has(to, slot) != want[i][slot] || sets.Word(to, slot>>6)>>(slot&63)&1 != 0 != want[i][slot] {
				t.Fatalf("slot %d of %v", slot, want[i])
			}
		}
		refs := map[ID]uint32{}
		for k := range ids {
			for o := range ids {
				if (ids[k] == ids[o]) != maps.Equal(want[k], want[o]) {
					t.Fatalf("%v and %v are %d and %d", want[k], want[o], ids[k], ids[o])
				}
			}
			if ids[k] >= FirstInterned {
				refs[ids[k]]++
			}
		}
		if n%50 == 0 {
			if err := sets.Check(&slots, refs); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range ids {
		sets.Release(ids[i], 1)
	}
	if sets.Len() != 0 {
		t.Errorf("%d sets are left", sets.Len())
	}
}

// TestTogglerCounts: neighbours that are toggled together hold the references that
// they would one by one.
func TestTogglerCounts(t *testing.T) {
	var clock epoch.Clock
	clock.Init()
	var sets Sets
	sets.Init(&clock)
	blocks := make([]ID, 10)
	for slot := range 3 {
		f := Toggler{Sets: &sets, Slot: slot}
		for i := range blocks[:10-3*slot] {
			to, ok := f.Next(blocks[i])
			if !ok {
				t.Fatal("no room")
			}
			blocks[i] = to
		}
		f.Flush()
	}
	refs := map[ID]uint32{}
	for _, id := range blocks {
		if id >= FirstInterned {
			refs[id]++
		}
	}
	var slots Slots
	slots.Init(&clock)
	for holder := range int32(3) {
		slots.Take(holder)
	}
	if err := sets.Check(&slots, refs); err != nil || len(refs) != 2 {
		t.Errorf("%v: %v", refs, err)
	}
}

// TestSlotsAreGivenAgainLate: a slot is given again only when it was freed and no
// lookup of before runs any more.
func TestSlotsAreGivenAgainLate(t *testing.T) {
	var clock epoch.Clock
	clock.Init()
	var slots Slots
	slots.Init(&clock)
	first, _ := slots.Take(7)
	slots.Take(8)
	if slot, ok := slots.Of(7); !ok || slot != first || slots.Holder(first) != 7 {
		t.Fatalf("slot %d, %v", slot, ok)
	}
	reader := clock.Enter()
	slots.Kill(first)
	if _, ok := slots.Of(7); ok || slots.Live.Has(first) || !slices.Equal(slots.Dead(), []int{first}) {
		t.Fatalf("killed, but %v live, %v dead", slots.Live.Has(first), slots.Dead())
	}
	slots.Free([]int{first})
	if slot, _ := slots.Take(9); slot == first {
		t.Fatal("the slot is another holder's while a lookup runs")
	}
	reader.Leave()
	if slot, _ := slots.Take(10); slot != first {
		t.Errorf("slot %d, want %d again", slot, first)
	}
	live := 0
	slots.Each(func(int) { live++ })
	if live != 3 || slots.Words() != 1 {
		t.Errorf("%d live slots in %d words", live, slots.Words())
	}
}
