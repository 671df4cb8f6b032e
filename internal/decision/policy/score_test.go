package policy

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
)

// plain are constants with which costs can be computed by heart.
func plain() TTFT {
	return TTFT{PrefillToken: 1, PrefillPair: 0, DecodeToken: 0.3, Lambda: 1, Kappa: 4}
}

// TestScore: every term of the cost, each on its own and all together.
func TestScore(t *testing.T) {
	p := plain()
	r := Request{Input: 100}
	for name, tt := range map[string]struct {
		c         Candidate
		wait, all float64 // expected first token, and cost, with no one awaiting elsewhere
	}{
		"nothing":             {Candidate{}, 100, 200},
		"a match":             {Candidate{Match: gpu(60, 60)}, 40, 80},
		"more to be loaded":   {Candidate{Match: gpu(20, 20).with(CPU, 40, 0.5)}, 20 + 40, 20 + 40 + 40 + 20},
		"of three places":     {Candidate{Match: gpu(20, 0).with(CPU, 20, 0.5).with(Storage, 10, 2).with(Shared, 10, 1)}, 40 + 40, 40 + 40 + 40 + 40},
		"behind other loads":  {Candidate{Match: gpu(20, 0).with(CPU, 40, 0.5), Load: Load{Loading: 30}}, 50 + 40, 50 + 40 + 40 + 20},
		"loaded in the queue": {Candidate{Match: gpu(20, 0).with(CPU, 40, 0.5), Load: Load{Pending: 30}}, 30 + 40, 30 + 40 + 40 + 20},
		"others' loads alone": {Candidate{Load: Load{Loading: 30}}, 100, 200},
		"pending":             {Candidate{Load: Load{Pending: 5}}, 105, 205},
		"strangers":           {Candidate{Load: Load{Foreign: 6}}, 106, 206},
		"slow":                {Candidate{Load: Load{Speed: 2}}, 200, 400},
		"live":                {Candidate{Load: Load{Live: 10}}, 100, 200 + 2*3*10},
		"slow and live":       {Candidate{Load: Load{Speed: 2, Live: 10}}, 200, 400 + 2*2*3*10},
		"staggered":           {Candidate{Load: Load{Live: 10}, Stagger: -4}, 100, 200 + 2*3*6},
		"an adapter to evict": {Candidate{Adapter: AdapterEvicted}, 100, 200.1},
		"awaiting":            {Candidate{Load: Load{Awaiting: 3}}, 100, 100 * (1 + 1 + 4*3)},
		"all": {Candidate{Match: gpu(20, 20).with(Shared, 20, 0.25), Load: Load{Pending: 5, Foreign: 6, Speed: 2, Live: 10, Awaiting: 3}},
			11 + 120, 11 + 14*120 + 13*5 + 120},
	} {
		if got := p.Wait(r, &tt.c); got != tt.wait {
			t.Errorf("%s: the first token is expected after %g s, want %g", name, got, tt.wait)
		}
		scores := make([]Score, 1)
		if p.Pick(nil, 1, r, []Candidate{tt.c}, scores); scores[0].Cost != tt.all {
			t.Errorf("%s: costs %g, want %g", name, scores[0].Cost, tt.all)
		}
	}
	// Requests that wait elsewhere make work dearer everywhere: the mean counts.
	scores := make([]Score, 2)
	p.Pick(nil, 1, r, []Candidate{{}, {Load: Load{Awaiting: 3}}}, scores)
	if want := 100 * (1 + 1 + 4*1.5); scores[0].Cost != want || scores[1].Cost != want {
		t.Errorf("costs %g and %g, want %g", scores[0].Cost, scores[1].Cost, want)
	}
}

// TestGuards: at the guard a candidate is ranked, above it not; the burst guard is
// for candidates whose match is not reported yet, and is never above the guard.
func TestGuards(t *testing.T) {
	for _, tt := range []struct {
		guard, burst        float64
		inFlight, elsewhere int
		coming              bool // the match is still being computed
		want                Verdict
	}{
		{0.5, 0, 12, 4, false, Ranked},      // 0.5*8 + 8
		{0.5, 0, 13, 3, false, LoadGuarded}, //
		{0.6, 0, 14, 6, false, Ranked},      // 0.6*10 + 8
		{0, 0, 99, 0, false, Ranked},        // no guard
		{0, 0.5, 5, 11, true, Ranked},       // 0.5*8 + 1.25
		{0, 0.5, 6, 10, true, LoadGuarded},  //
		{0, 0.5, 6, 10, false, Ranked},      // a reported match has no burst
		{0, 0, 99, 0, true, Ranked},         // no burst guard
		{0.5, 9, 11, 0, true, LoadGuarded},  // the guard, 10.75, holds for bursts too
	} {
		p := plain()
		p.Guard, p.BurstGuard = tt.guard, tt.burst
		c := fleet(2)
		c[0].InFlight, c[1].InFlight = tt.inFlight, tt.elsewhere
		if tt.coming {
			c[0].Match = gpu(50, 0)
		}
		scores := make([]Score, 2)
		p.Pick(nil, 1, Request{Input: 100}, c, scores)
		if scores[0].Verdict != tt.want {
			t.Errorf("%+v: %v", tt, scores[0].Verdict)
		}
	}
}

// TestOrder: verdict, then cost, then context in flight, then requests in flight,
// then the hash of candidate and decision.
func TestOrder(t *testing.T) {
	for name, tt := range map[string]struct {
		cands   [2]Candidate
		scores  [2]Score
		balance bool
		want    []int32
	}{
		"verdict before cost":     {scores: [2]Score{{Verdict: LoadGuarded}, {Cost: 9}}, want: []int32{1, 0}},
		"guarded before failing":  {scores: [2]Score{{Verdict: Failing}, {Verdict: LoadGuarded, Cost: 9}}, want: []int32{1, 0}},
		"cost":                    {scores: [2]Score{{Cost: 2}, {Cost: 1}}, cands: [2]Candidate{{}, {Load: Load{Live: 5, InFlight: 5}}}, want: []int32{1, 0}},
		"context in flight":       {cands: [2]Candidate{{Load: Load{Live: 2}}, {Load: Load{Live: 1, InFlight: 9}}}, want: []int32{1, 0}},
		"of no matter to balance": {cands: [2]Candidate{{Load: Load{Live: 2}}, {Load: Load{Live: 1, InFlight: 9}}}, balance: true, want: []int32{0, 1}},
		"requests in flight":      {cands: [2]Candidate{{Load: Load{Live: 2, InFlight: 3}}, {Load: Load{Live: 2, InFlight: 2}}}, want: []int32{1, 0}},
	} {
		r := ranking{cands: tt.cands[:], scores: tt.scores[:], live: !tt.balance}
		if got := r.best(nil, 2); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	// The hash decides by decision, and the same way in whatever order they come.
	swapped := 0
	for n := range uint64(100) {
		order := func(hashes ...uint64) uint64 {
			r := ranking{cands: []Candidate{{Hash: hashes[0]}, {Hash: hashes[1]}}, scores: make([]Score, 2), ordinal: n}
			return hashes[r.best(nil, 1)[0]]
		}
		if order(1, 2) != order(2, 1) {
			t.Fatalf("decision %d depends on the order of the candidates", n)
		}
		if order(1, 2) == 2 {
			swapped++
		}
	}
	if swapped < 30 || swapped > 70 {
		t.Errorf("%d of 100 equal decisions go to the second", swapped)
	}
}

// TestSaturated: at the limit a replica may still be named.
func TestSaturated(t *testing.T) {
	for _, tt := range []struct {
		limit float64
		want  bool
	}{{0, false}, {-1, false}, {99, true}, {100, false}, {101, false}} {
		s := Settings{MaxTTFT: tt.limit, TTFT: plain()}
		if got := s.Saturated(Request{Input: 100}, []Candidate{{Load: Load{Pending: 50}}, {}}); got != tt.want {
			t.Errorf("limit %g s, the first token after 100: %v", tt.limit, got)
		}
	}
}

// TestDisturbed: a guarded replica with a hot match that is longer than that of the
// one chosen.
func TestDisturbed(t *testing.T) {
	s := DefaultSettings()
	for name, tt := range map[string]struct {
		other   int
		verdict Verdict
		want    bool
	}{
		"longer and hot":     {400, LoadGuarded, true},
		"as long":            {350, LoadGuarded, false},
		"longer, but failed": {400, Failing, false},
		"longer, but ranked": {400, Ranked, false},
	} {
		cands := []Candidate{{Match: gpu(350, 0)}, {Match: gpu(tt.other, 0)}}
		if got := s.Disturbed(0, Request{Input: 1000}, cands, []Score{{}, {Verdict: tt.verdict}}); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if s.Disturbed(0, Request{Input: 1000}, []Candidate{{}, {Match: gpu(299, 0)}}, []Score{{}, {Verdict: LoadGuarded}}) {
		t.Error("a match that is not hot")
	}
}

func TestVerdictsAsText(t *testing.T) {
	for v, want := range map[Verdict]string{Ranked: "ranked", LoadGuarded: "load_guarded", Failing: "failing"} {
		text, err := json.Marshal(v)
		var back Verdict
		if err != nil || string(text) != `"`+want+`"` || json.Unmarshal(text, &back) != nil || back != v {
			t.Errorf("%d is written %s and read as %d", v, text, back)
		}
	}
	var v Verdict
	if err := v.UnmarshalText([]byte("fine")); err == nil {
		t.Errorf("read as %v", v)
	}
	if s := Verdict(9).String(); s != "unknown" {
		t.Errorf("an unknown verdict is %s", s)
	}
}

// TestBoundsAreAllowed: the least and the most that a field's documentation allows.
func TestBoundsAreAllowed(t *testing.T) {
	for _, o := range []Overrides{
		{MaxTTFT: ptr(0.0)}, {MinPrefixMatch: ptr(0.0)}, {MinPrefixMatch: ptr(1.0)}, {BalanceAbs: ptr(0)}, {BalanceRel: ptr(0.0)}, {BalanceRel: ptr(1.0)},
		{TTFT: map[string]*float64{"guard": ptr(0.0)}}, {TTFT: map[string]*float64{"load_token": ptr(0.0)}},
	} {
		if err := o.Validate(); err != nil {
			t.Error(err)
		}
	}
	for _, o := range []Overrides{
		{MaxTTFT: ptr(math.Inf(1))}, {BalanceRel: ptr(math.NaN())}, {TTFT: map[string]*float64{"guard": ptr(math.Inf(1))}},
	} {
		if o.Validate() == nil {
			t.Errorf("%+v is valid", o)
		}
	}
}

// gpu returns a match of so many tokens, of which so many are reported; the others are coming.
func gpu(matched, reported int) (m Match) {
	m[GPU] = Stretch{Tokens: int32(reported), Credit: 1, Source: Reported}
	m[Coming] = Stretch{Tokens: int32(matched - reported), Credit: 1, Source: Reported}
	return m
}

// with returns m with a stretch more.
func (m Match) with(p Place, tokens int32, token float32) Match {
	m[p] = Stretch{Tokens: tokens, Credit: 1, Token: token, Source: Reported}
	return m
}
