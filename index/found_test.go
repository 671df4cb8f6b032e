package index

import (
	"testing"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/holderset"
)

// A holder that comes while a lookup runs may have a slot beyond the slots that the
// lookup knows: the lookup does not find it, and loses no other.
func TestSeatsThatComeDuringALookup(t *testing.T) {
	var s holderset.Sets
	var c epoch.Clock
	c.Init()
	s.Init(&c)
	both, ok := s.Toggle(holderset.ID(3+1), 200)
	if !ok {
		t.Fatal("no set")
	}
	for name, set := range map[string]holderset.ID{"alone": holderset.ID(200 + 1), "with another": both, "nobody": 0} {
		f := Found{words: 1, first: []uint64{1<<3 | 1<<5}, alive: []uint64{1<<3 | 1<<5}, ends: make([]int32, 64)}
		if any := f.keep(&s, set, 7); any != (name == "with another") {
			t.Errorf("%s: others are left: %v", name, any)
		}
		if f.finish(9); f.ends[5] != 7 || name == "with another" && f.ends[3] != 9 || name != "with another" && f.ends[3] != 7 {
			t.Errorf("%s: slots 3 and 5 end at %d and %d", name, f.ends[3], f.ends[5])
		}
	}
}
