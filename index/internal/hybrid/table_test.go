package hybrid

import (
	"math/rand/v2"
	"testing"
)

// TestTableIsWhatWasFlipped: a block has exactly the seats that were added and not removed,
// whatever else the table holds; it grows and shrinks with its live rows.
func TestTableIsWhatWasFlipped(t *testing.T) {
	var tb table
	tb.init()
	rnd := rand.New(rand.NewPCG(1, 2))
	want := map[uint64]map[int]bool{}
	longest := 0
	check := func() {
		t.Helper()
		live := 0
		for key, seats := range want {
			set := tb.get(key)
			words := [4]uint64{}
			for seat, on := range seats {
				if set.has(seat) != on {
					t.Fatalf("block %x: seat %d is %v", key, seat, !on)
				}
				if on {
					words[seat>>6] |= 1 << (seat & 63)
				}
			}
			for i, word := range words {
				if set.word(i) != word {
					t.Fatalf("block %x: word %d is %x, want %x", key, i, set.word(i), word)
				}
			}
			if words == [4]uint64{} && set != nil {
				t.Fatalf("block %x has an empty set", key)
			}
			if set != nil {
				live++
				if set.words[len(set.words)-1] == 0 {
					t.Fatalf("block %x has an empty word", key)
				}
			}
		}
		used := 0
		for i := range *tb.rows.Load() {
			if (*tb.rows.Load())[i].key.Load() != 0 {
				used++
			}
		}
		if tb.live != live || tb.used != used || used*4 > len(*tb.rows.Load())*3 {
			t.Fatalf("%d live, %d used rows of %d, want %d and %d", tb.live, tb.used, len(*tb.rows.Load()), live, used)
		}
		longest = max(longest, len(*tb.rows.Load()))
	}
	for i := range 6000 {
		key := uint64(1 + rnd.IntN(min(600, 40+i))) // they meet in the low bits
		if rnd.IntN(2) > 0 {
			key <<= 8
		}
		seat, on := []int{0, 1, 63, 64, 130}[rnd.IntN(5)], rnd.IntN(3) > 0
		if i > 4000 {
			on = false
		}
		for k := range uint64(1 + rnd.IntN(3)) { // neighbours share a change
			if want[key+k] == nil {
				want[key+k] = map[int]bool{}
			}
			want[key+k][seat] = on
			tb.flip(key+k, seat, on)
		}
		if i%100 == 0 {
			check()
		}
	}
	if tb.get(1<<40) != nil || tb.get(1<<40).has(-1) {
		t.Error("an unknown block is held")
	}
	for key := range want {
		for seat := range want[key] {
			want[key][seat] = false
			tb.flip(key, seat, false)
		}
	}
	check()
	for key := range uint64(4000) { // all are new: the rows of the others are not kept
		tb.flip(1<<20+key, 0, true)
		tb.flip(1<<20+key, 0, false)
	}
	if n := len(*tb.rows.Load()); n != minRows || longest != 4096 && longest != 2048 {
		t.Errorf("%d rows in the end, %d at most", n, longest)
	}
	tb.flip(5, 3, true)
	tb.flip(6, 3, true)
	if tb.get(5) != tb.get(6) {
		t.Error("neighbours do not share their set")
	}
}
