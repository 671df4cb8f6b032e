package index

import "testing"

// A holder that came while a lookup ran may have a seat beyond those the lookup
// knows of: it is not among what is found, and nothing else is lost.
func TestSeatsThatComeDuringALookup(t *testing.T) {
	var s sets
	var e epochs
	e.init()
	s.init(&e)
	both, ok := s.flip(setID(3+1), 200)
	if !ok {
		t.Fatal("no set")
	}
	for name, set := range map[string]setID{"alone": setID(200 + 1), "with another": both, "nobody": 0} {
		f := Found{words: 1, first: []uint64{1<<3 | 1<<5}, alive: []uint64{1<<3 | 1<<5}, ends: make([]int32, 64)}
		if any := f.keep(&s, set, 7); any != (name == "with another") {
			t.Errorf("%s: others are left: %v", name, any)
		}
		if f.finish(9); f.ends[5] != 7 || name == "with another" && f.ends[3] != 9 || name != "with another" && f.ends[3] != 7 {
			t.Errorf("%s: seats 3 and 5 end at %d and %d", name, f.ends[3], f.ends[5])
		}
	}
}
