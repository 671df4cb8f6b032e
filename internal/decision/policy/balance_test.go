package policy

import (
	"slices"
	"testing"
)

func balance(b Balance, n int, r Request, c []Candidate) []int32 {
	return b.Pick(nil, n, r, c, make([]Score, len(c)))
}

// TestBothGuardsFilter: the absolute one binds where much is in flight, the
// relative one where little is.
func TestBothGuardsFilter(t *testing.T) {
	for _, tt := range []struct {
		abs   int
		rel   float64
		least int
		most  int // in flight that still passes
	}{
		{2, 1.5, 0, 1}, {2, 1.5, 1, 2}, {2, 1.5, 2, 4}, {2, 1.5, 10, 12},
		{2, 0, 0, 2}, {0, 1.5, 5, 5}, {9, 1, 5, 6},
	} {
		b := Balance{MinMatch: 0.3, Abs: tt.abs, Rel: tt.rel}
		c := fleet(3)
		c[0].Match, c[1].InFlight, c[2].InFlight = gpu(900, 0), tt.least, tt.most+1
		c[0].InFlight = tt.most
		if got := balance(b, 1, Request{Input: 1000}, c)[0]; got != 0 {
			t.Errorf("%+v: %d in flight are guarded out", tt, c[0].InFlight)
		}
		c[0].InFlight = tt.most + 1
		if got := balance(b, 1, Request{Input: 1000}, c)[0]; got != 1 {
			t.Errorf("%+v: %d in flight pass", tt, c[0].InFlight)
		}
	}
}

func TestBelowTheMinimumMatchPlacementIsCold(t *testing.T) {
	b, c := DefaultBalance(), fleet(3)
	c[0].CacheWeight, c[1].CacheWeight, c[2].CacheWeight = 5, 1, 3
	c[0].Match = gpu(299, 0)
	if got := balance(b, 3, Request{Input: 1000}, c); !slices.Equal(got, []int32{1, 2, 0}) {
		t.Errorf("below 0.3: %v, want by cache weight", got)
	}
	c[0].Match = gpu(300, 0)
	if got := balance(b, 3, Request{Input: 1000}, c); !slices.Equal(got, []int32{0, 1, 2}) {
		t.Errorf("at 0.3: %v, want the match first", got)
	}
	c[0].Match = gpu(4, 0)
	if got := balance(b, 1, Request{Input: 1000, Matchable: 10}, c)[0]; got != 0 {
		t.Errorf("4 of 10 tokens that can match: %v, want the match", got)
	}
	b.MinMatch = 0
	c[0].Match = gpu(0, 0)
	if got := balance(b, 1, Request{Input: 1000}, c)[0]; got != 1 {
		t.Errorf("no match is not hot even at a minimum of 0: %v", got)
	}
}

func TestTheLongerOfTwoHotMatchesWins(t *testing.T) {
	b, c := DefaultBalance(), fleet(3)
	c[0].Match, c[2].Match = gpu(500, 0), gpu(900, 0)
	if got := balance(b, 2, Request{Input: 1000}, c); !slices.Equal(got, []int32{2, 0}) {
		t.Errorf("%v", got)
	}
}

func TestNobodyEligibleIsNoPick(t *testing.T) {
	b, c := DefaultBalance(), fleet(3)
	for i := range c {
		c[i].Failing = true
	}
	if got := balance(b, 3, Request{Input: 10}, c); len(got) != 0 {
		t.Errorf("all failing: %v", got)
	}
	if got := balance(b, 3, Request{Input: 10}, nil); len(got) != 0 {
		t.Errorf("no candidates: %v", got)
	}
	c[1].Failing = false
	if got := balance(b, 1, Request{Input: 10}, c); !slices.Equal(got, []int32{1}) {
		t.Errorf("one left: %v", got)
	}
}

func TestTiesGoToTheLeastLoadedThenSpread(t *testing.T) {
	b, c := DefaultBalance(), fleet(4)
	c[0].InFlight, c[1].InFlight = 1, 1
	var count [4]int
	for n := range 4000 {
		count[balance(b, 1, Request{Input: 100, Ordinal: uint64(n)}, c)[0]]++
	}
	if count[0]+count[1] != 0 || count[2] < 1800 || count[3] < 1800 {
		t.Errorf("equals with least in flight got %v", count)
	}
	var again [4]int
	for n := range 4000 {
		again[balance(b, 1, Request{Input: 100, Ordinal: uint64(n)}, c)[0]]++
	}
	if again != count {
		t.Errorf("the same ordinals gave %v and %v", count, again)
	}
}

func TestDisturbedIsAHotMatchGuardedOut(t *testing.T) {
	s := DefaultSettings()
	s.Policy = NameBalance
	for name, tt := range map[string]struct {
		change func(c []Candidate)
		want   bool
	}{
		"hot and guarded out":            {func(c []Candidate) { c[0].Match, c[0].InFlight = gpu(900, 0), 9 }, true},
		"hot and chosen":                 {func(c []Candidate) { c[0].Match = gpu(900, 0) }, false},
		"guarded out, but hardly warm":   {func(c []Candidate) { c[0].Match, c[0].InFlight = gpu(100, 0), 9 }, false},
		"guarded out, unique prompt":     {func(c []Candidate) { c[0].InFlight = 9 }, false},
		"failing is not the guard":       {func(c []Candidate) { c[0].Match, c[0].Failing = gpu(900, 0), true }, false},
		"the chosen one is as warm":      {func(c []Candidate) { c[0].Match, c[0].InFlight, c[1].Match = gpu(900, 0), 9, gpu(900, 0) }, false},
		"the chosen one is not that hot": {func(c []Candidate) { c[0].Match, c[0].InFlight, c[1].Match = gpu(900, 0), 9, gpu(400, 0) }, true},
	} {
		c := fleet(2)
		tt.change(c)
		scores := make([]Score, 2)
		r := Request{Input: 1000}
		got := s.Pick(nil, 1, r, c, scores)
		if d := s.Disturbed(got[0], r, c, scores); d != tt.want {
			t.Errorf("%s: disturbed %v, want %v", name, d, tt.want)
		}
	}
}

// TestAFailingReplicaSetsNoLimit: one that fails has little in flight, which guards no other out.
func TestAFailingReplicaSetsNoLimit(t *testing.T) {
	b, c := DefaultBalance(), fleet(3)
	c[0].Failing, c[1].InFlight, c[2].InFlight, c[2].Match = true, 7, 8, gpu(900, 0)
	if got := balance(b, 1, Request{Input: 1000}, c); !slices.Equal(got, []int32{2}) {
		t.Errorf("%v, want the warm one", got)
	}
}
