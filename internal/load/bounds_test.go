package load

import "testing"

// end returns the key of an end; all are kept apart.
func end(i int) uint64 { return uint64(i+1)<<24 | uint64(i)%boundEnds }

// TestUnfound: what is missing at an end counts as far as it was missing again, and at no other
// end.
func TestUnfound(t *testing.T) {
	const bound = 4000
	for name, tt := range map[string]struct {
		found   []int // at one end, in turns
		want    [2]int
		telling bool
		counts  int
		newOnes int // first counts at other ends, in which nothing is found
	}{
		"never counted":          {counts: 0, found: []int{0}, want: [2]int{0, 0}, telling: true},
		"all found":              {counts: 20, found: []int{bound}, want: [2]int{0, 0}},
		"more found":             {counts: 20, found: []int{2 * bound}, want: [2]int{0, 0}},
		"missing once":           {counts: 1, found: []int{0}, want: [2]int{0, 0}, telling: true},
		"never found":            {counts: 20, found: []int{0}, want: [2]int{3900, bound}, telling: true},
		"a checkpoint before it": {counts: 20, found: []int{3000}, want: [2]int{900, 1000}, telling: true},
		"found the second time":  {counts: 20, found: []int{2 * bound, 0}, want: [2]int{0, 100}, telling: true},
		"missing at first sight": {counts: 0, newOnes: 500, found: []int{0}, want: [2]int{0, 0}, telling: true},
	} {
		a := newRig(t).Of(one)
		for i := range tt.newOnes {
			a.FoundOf(end(i+1), bound, 0)
		}
		for i := range tt.counts {
			a.FoundOf(end(0), bound, tt.found[i%len(tt.found)])
		}
		is := a.Bound(end(0), bound)
		got, telling := is.Unfound, is.Telling
		if got < tt.want[0] || got > tt.want[1] || telling != tt.telling {
			t.Errorf("%s: %d tokens are not expected, telling %v; want %v, %v", name, got, telling, tt.want, tt.telling)
		}
		if got := a.Bound(end(999), bound).Unfound; got != 0 {
			t.Errorf("%s: %d tokens are not expected at an end that was never counted", name, got)
		}
	}
}

// TestUnfoundIsForgotten: a replica that finds its states again, or has joined anew, is
// credited again; and its memory is bounded.
func TestUnfoundIsForgotten(t *testing.T) {
	const bound = 4000
	r := newRig(t)
	a := r.Of(one)
	miss := func() {
		for i := range 300 {
			a.FoundOf(end(i%5), bound, 0)
		}
		if got := a.Bound(end(0), bound).Unfound; got < bound*9/10 {
			t.Fatalf("%d tokens are not expected", got)
		}
	}
	miss()
	a.FoundOf(end(0), bound, bound)
	if is := a.Bound(end(0), bound); is.Unfound != 0 || is.Telling {
		t.Errorf("%d tokens are not expected where the last count has all, telling %v", is.Unfound, is.Telling)
	}
	for i := range 200 { // each end is short once, and whole the next time
		a.FoundOf(end(100+i), bound, 0)
		a.FoundOf(end(100+i), bound, bound)
	}
	if got := a.Bound(end(1), bound).Unfound; got > bound/10 {
		t.Errorf("%d tokens are not expected, though what is missing is there the next time", got)
	}
	miss()
	for i := range 3 * boundEnds {
		a.FoundOf(end(1000+i), bound, 0)
	}
	if is := a.Bound(end(0), bound); is.Unfound != 0 || !is.Telling {
		t.Errorf("%d tokens are not expected at an end whose place another has taken", is.Unfound)
	}
	miss()
	r.Drop(one.Replica)
	if got := r.Of(one).Bound(end(0), bound).Unfound; got != 0 {
		t.Errorf("%d tokens are not expected of a replica that has joined anew", got)
	}
}

// TestUnfoundAllocatesNothing: it is on the path of requests.
func TestUnfoundAllocatesNothing(t *testing.T) {
	a := newRig(t).Of(one)
	a.FoundOf(end(0), 100, 0)
	if n := testing.AllocsPerRun(100, func() { a.Bound(end(0), 100) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestClaimsOfBounds: a replica without counts is held to its bounds; one that counts, to what
// it has counted itself.
func TestClaimsOfBounds(t *testing.T) {
	a := newRig(t).Of(one)
	want := func(i, unclaimed int, when string) {
		t.Helper()
		if got := a.Bound(end(i), 1000).Unclaimed; got != unclaimed {
			t.Errorf("%s: %d tokens are not claimed, want %d", when, got, unclaimed)
		}
	}
	want(0, 0, "without counts")
	a.FoundOf(end(0), 1000, 300)
	want(0, 700, "after a count that is short")
	want(1, 1000, "where none is kept")
	a.FoundOf(end(0), 1000, 2000)
	want(0, 0, "after a count beyond the bound")
	a.FoundOf(end(0), 1000, -5)
	want(0, 1000, "after a count that is none")
}
