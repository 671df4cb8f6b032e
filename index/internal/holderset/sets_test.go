package holderset

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"warmroute/index/internal/epoch"
	"warmroute/render/testkit/must"
)

// TestSetsAreInterned: a set has the toggled members, equal sets have equal numbers, and
// a set without references no longer exists.
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
		sets.Release(ids[i])
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
		slot -= rnd.IntN(2) * (slot + 1) // perhaps -1
		agree := []uint64{rnd.Uint64(), rnd.Uint64(), rnd.Uint64(), rnd.Uint64()}
		was := slices.Clone(agree)
		if sets.Agree(to, slot, agree) != want[i][slot] {
			t.Fatalf("slot %d of %v", slot, want[i])
		}
		for other := range 256 {
			if left := was[other>>6]>>(other&63)&1 != 0 && want[i][other] == want[i][slot]; agree[other>>6]>>(other&63)&1 != 0 != left {
				t.Fatalf("slots %d and %d of %v agree: %v", slot, other, want[i], left)
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
			must.Do(t, sets.check(&slots, refs))
		}
	}
	for i := range ids {
		sets.Release(ids[i])
	}
	if sets.Len() != 0 {
		t.Errorf("%d sets are left", sets.Len())
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
	if live := len(liveOf(&slots)); live != 3 || slots.Words() != 1 {
		t.Errorf("%d live slots in %d words", live, slots.Words())
	}
}

// liveOf returns the live slots.
func liveOf(s *Slots) (all []int) {
	for slot := range s.Words() << 6 {
		if s.Live.Has(slot) {
			all = append(all, slot)
		}
	}
	return all
}

// TestHoldersAreFound: by any number, those of slots in later words too, and no
// holder that there is not.
func TestHoldersAreFound(t *testing.T) {
	var clock epoch.Clock
	clock.Init()
	var slots Slots
	slots.Init(&clock)
	var want []int
	for i := range 70 {
		holder := int32(1000 - 7*i)
		if i == 69 {
			holder = 0
		}
		slot, ok := slots.Take(holder)
		if got, found := slots.Of(holder); !ok || !found || got != slot || slots.Holder(slot) != holder {
			t.Fatalf("holder %d took slot %d, has %d (%v)", holder, slot, got, found)
		}
		want = append(want, slot)
	}
	if got := liveOf(&slots); !slices.Equal(got, want) || slots.Words() != 2 {
		t.Errorf("live are %v in %d words", got, slots.Words())
	}
	for holder := int32(1001); holder < 4100; holder++ {
		if slot, ok := slots.Of(holder); ok {
			t.Fatalf("holder %d, whom there is not, has slot %d", holder, slot)
		}
	}
	if _, ok := slots.Of(-1); ok {
		t.Error("holder -1 has a slot")
	}
}

// TestSlotsEnd: there are MaxSlots, and no more.
func TestSlotsEnd(t *testing.T) {
	var clock epoch.Clock
	clock.Init()
	var slots Slots
	slots.Init(&clock)
	for holder := range int32(MaxSlots) {
		if slot, ok := slots.Take(holder); !ok || slot != int(holder) {
			t.Fatalf("holder %d: slot %d, %v", holder, slot, ok)
		}
	}
	if slot, ok := slots.Take(MaxSlots); ok {
		t.Errorf("one more: slot %d", slot)
	}
}

// TestSetsEnd: where no number is left, a set is refused.
func TestSetsEnd(t *testing.T) {
	var clock epoch.Clock
	clock.Init()
	var sets Sets
	sets.Init(&clock)
	pages := make([]*page, maxSets/setsPerPage)
	sets.pages.Store(&pages)
	if id, ok := sets.Toggle(Single(1), 2); ok {
		t.Errorf("set %d behind the last one, %d", id, MaxID)
	}
}

// TestSetsTakeTheRoomTheyNeed: a word for 64 slots, a page for 256 sets, and sets
// without references make room for others, once no lookup sees them.
func TestSetsTakeTheRoomTheyNeed(t *testing.T) {
	var clock epoch.Clock
	clock.Init()
	var sets Sets
	sets.Init(&clock)
	if one, ok := sets.Toggle(0, 5); !ok || one != Single(5) || sets.Bytes() != 0 {
		t.Errorf("the set of slot 5 is %d in %d bytes, want %d in none", one, sets.Bytes(), Single(5))
	}
	// pairs makes 63 sets, the last one of slots 0 and 63.
	pairs := func() (ids []ID) {
		for slot := 1; slot < 64; slot++ {
			id, ok := sets.Toggle(Single(slot), 0)
			if !ok || len(sets.Words(id)) != 1 {
				t.Fatalf("slots 0 and %d take %d words", slot, len(sets.Words(id)))
			}
			ids = append(ids, id)
		}
		return ids
	}
	release := func(ids []ID) {
		for _, id := range ids {
			sets.Release(id)
		}
	}
	const page = setsPerPage * (8 + 16) // a word and an info for each set
	ids := pairs()
	if got := sets.Bytes(); got != page+32*len(ids) {
		t.Errorf("%d sets take %d bytes, want %d", len(ids), got, page+32*len(ids))
	}
	release(ids)
	reader := clock.Enter()
	for range 16 { // 1,008 sets that a lookup may see, besides the 63 before
		release(pairs())
	}
	reader.Leave()
	most := sets.Bytes()
	if most != 4*page {
		t.Errorf("1,008 sets have %d bytes of pages, want 4 pages of %d", most, page)
	}
	for range 100 {
		release(pairs())
	}
	if sets.Bytes() != most {
		t.Errorf("%d bytes, %d before: sets are not given again", sets.Bytes(), most)
	}
}

// check reports an error in the sets, given the references to them: they must be
// counted and interned rightly, and name only slots in use.
func (s *Sets) check(slots *Slots, refs map[ID]uint32) error {
	used := 0
	for k := range s.of {
		id, o := ID(FirstInterned+k), &s.of[k]
		if o.refs != refs[id] {
			return fmt.Errorf("set %d has %d references, counted as %d", id, refs[id], o.refs)
		}
		if o.refs == 0 {
			continue
		}
		used++
		size, print := 0, uint64(0)
		free := -1
		s.Each(id, func(slot int) {
			size, print = size+1, print^zobrist(slot)
			if !slots.Live.Has(slot) && !slices.Contains(slots.dead, slot) {
				free = slot
			}
		})
		if free >= 0 {
			return fmt.Errorf("set %d has slot %d, which is nobody's", id, free)
		}
		if size != int(o.size) || size < 2 || print != o.print || s.byPrint[print] != id {
			return fmt.Errorf("set %d of %d slots, counted as %d, is interned as %d", id, size, o.size, s.byPrint[print])
		}
	}
	if used != len(s.byPrint) {
		return fmt.Errorf("%d sets are used, %d interned", used, len(s.byPrint))
	}
	return nil
}
