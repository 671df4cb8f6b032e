package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func fleet(n int) []Candidate {
	c := make([]Candidate, n)
	for i := range c {
		c[i].Hash = mix(uint64(i) + 1)
	}
	return c
}

func pick(t *TTFT, n int, r Request, c []Candidate) []int32 {
	return t.Pick(nil, n, r, c, make([]Score, len(c)))
}

func TestPrefillFormula(t *testing.T) {
	p := DefaultTTFT()
	// 400 of 1,000 tokens are cached; the other 600 are computed, each against the tokens
	// before it.
	want := 35e-6*600 + 1e-9*600*(400+300)
	if got := p.Prefill(1000, 400); math.Abs(got-want) > 1e-15 {
		t.Errorf("Prefill(1000, 400) = %g, want %g", got, want)
	}
	if got, want := p.Prefill(100, 100), p.Prefill(100, 99); got != want {
		t.Errorf("a full hit costs %g, want %g: the last token is always computed", got, want)
	}
	c := Candidate{Match: gpu(400, 0).with(CPU, 500, 1e-6), Load: Load{Speed: 2}}
	if got, want := p.Saved(Request{Input: 1000}, &c), 2*(p.Prefill(1000, 0)-p.Prefill(1000, 400)); got != want || got <= 0 {
		t.Errorf("400 tokens on the GPU save %g, want %g", got, want)
	}
}

// TestRoomIsTakenFromOthers: where two caches are full of requests that run, a prompt stays where
// it is cached, and takes its answer's tokens alone, although it waits longer there.
func TestRoomIsTakenFromOthers(t *testing.T) {
	p, c := DefaultTTFT(), fleet(2)
	c[0].Match, c[0].Room, c[0].Crowding = gpu(7_000, 7_000), 4, 0.2
	c[1].Room, c[1].Crowding = 1, 1
	if got := pick(&p, 1, Request{Input: 7_200}, c); got[0] != 0 {
		t.Errorf("Pick = %v, want the warm replica", got)
	}
	c[1].Crowding = 0.2
	if got := pick(&p, 1, Request{Input: 7_200}, c); got[0] != 1 {
		t.Errorf("Pick = %v, want the one with more room where both take as much", got)
	}
}

// TestAFailingReplicaLowersNoGuard: the mean is of the replicas that work.
func TestAFailingReplicaLowersNoGuard(t *testing.T) {
	p, c := DefaultTTFT(), fleet(4)
	c[0].Match, c[0].InFlight, c[1].InFlight = gpu(900, 900), 20, 6
	c[2].Failing, c[3].Failing = true, true
	if got := pick(&p, 1, Request{Input: 1000}, c); !slices.Equal(got, []int32{0}) {
		t.Errorf("Pick = %v, want the warm one", got)
	}
}

func TestTiesSpread(t *testing.T) {
	p, c := DefaultTTFT(), fleet(8)
	var count [8]int
	for n := range 8000 {
		count[pick(&p, 1, Request{Input: 100, Ordinal: uint64(n)}, c)[0]]++
	}
	for i, n := range count {
		if n < 800 || n > 1200 {
			t.Errorf("replica %d got %d of 8000 equal decisions: %v", i, n, count)
		}
	}
}

// TestRankIsASort compares the insertion of the best n with sorting everything.
func TestRankIsASort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	p := DefaultTTFT()
	for range 2000 {
		c := fleet(1 + rng.IntN(20))
		for i := range c {
			c[i].Match, c[i].InFlight = gpu(rng.IntN(4)*100, 0), rng.IntN(12)
			c[i].Awaiting, c[i].Live, c[i].Failing = rng.IntN(3), float64(rng.IntN(3)), rng.IntN(5) == 0
			c[i].Pending = float64(rng.IntN(3))
		}
		r := Request{Input: 500, Ordinal: rng.Uint64()}
		scores := make([]Score, len(c))
		n := 1 + rng.IntN(4)
		got := p.Pick([]int32{-7}, n, r, c, scores)
		all := make([]int32, len(c))
		for i := range all {
			all[i] = int32(i)
		}
		by := ranking{cands: c, scores: scores, ordinal: r.Ordinal, live: true}
		slices.SortStableFunc(all, func(a, b int32) int {
			switch {
			case by.before(a, b):
				return -1
			case by.before(b, a):
				return 1
			}
			return 0
		})
		if want := append([]int32{-7}, all[:min(n, len(all))]...); !slices.Equal(got, want) {
			t.Fatalf("Pick = %v, want %v", got, want)
		}
	}
}

func TestPickAllocatesNothing(t *testing.T) {
	p, c := DefaultTTFT(), fleet(64)
	scores, ranked := make([]Score, 64), make([]int32, 0, 3)
	if n := testing.AllocsPerRun(100, func() { ranked = p.Pick(ranked[:0], 3, Request{Input: 12288}, c, scores) }); n != 0 {
		t.Errorf("Pick allocates %v times", n)
	}
}

// TestRoutersSpread: of nearly equal candidates, routers that decide at the same
// instant choose different ones; a clear winner is everybody's choice, and so is
// the best where nothing is on its way.
func TestRoutersSpread(t *testing.T) {
	cfg := DefaultTTFT()
	cands := make([]Candidate, 16)
	for i := range cands {
		cands[i] = Candidate{Hash: mix(uint64(i)), Load: Load{Pending: 0.1 + 0.001*float64(i)}}
	}
	scores := make([]Score, len(cands))
	chosen := func(unheard float64) map[int32]int {
		by := map[int32]int{}
		for router := range uint64(8) {
			ranked := cfg.Pick(nil, 1, Request{Input: 4000, Ordinal: 1 ^ mix(1000+router), Unreported: unheard}, cands, scores)
			by[ranked[0]]++
		}
		return by
	}
	if got := chosen(0); got[0] != 8 {
		t.Errorf("nothing on its way: %v", got)
	}
	if got := chosen(0.05); len(got) < 4 {
		t.Errorf("eight routers chose among %d nearly equal replicas: %v", len(got), got)
	}
	cands[5].Pending = -1 // beyond any number that a hash makes of 0.05 s
	if got := chosen(0.05); got[5] != 8 {
		t.Errorf("a clear winner: %v", got)
	}
}

// TestAJunctionIsWorthSomething: a prompt goes where full attention has its
// beginning, though it hits nothing there yet, unless others wait there.
func TestAJunctionIsWorthSomething(t *testing.T) {
	p, c := DefaultTTFT(), fleet(4)
	c[2].Match = gpu(0, 0).with(Cut, 8000, 0)
	worth := junction * (p.Prefill(10_000, 0) - p.Prefill(10_000, 8000))
	for pending, want := range map[float64]bool{0: true, 0.9 * worth: true, 1.1 * worth: false} {
		c[2].Pending = pending
		if got := pick(&p, 1, Request{Input: 10_000}, c)[0] == 2; got != want {
			t.Errorf("with %g s ahead of it, chosen: %v", pending, got)
		}
	}
	c[2].Pending, c[1].Match = 0, gpu(8000, 8000)
	if got := pick(&p, 1, Request{Input: 10_000}, c)[0]; got != 1 {
		t.Errorf("replica %d is preferred to the one that is hit", got)
	}
}

// TestRecentWorkIsEvenedOut: a prompt that is hardly cached goes where less prefill was sent, once
// enough requests show it: few do where hardly any is in flight. One that is mostly cached stays. Replicas that fail count for nothing.
func TestRecentWorkIsEvenedOut(t *testing.T) {
	p := DefaultTTFT()
	for name, tt := range map[string]struct {
		cached         int
		each, requests float64 // s of prefill of each request, and how many the first replica had; the other had half of them
		inFlight       int
		want           int32
	}{
		"even by few":      {1_000, 0.1, 2, 0, 0},
		"by some":          {800, 0.1, 10, 0, 1},
		"by some, busy":    {800, 0.1, 10, 10, 0},
		"hardly cached":    {1_000, 0.1, 100, 0, 1},
		"mostly cached":    {3_000, 0.1, 100, 0, 0},
		"nothing was sent": {1_000, 0, 0, 0, 0},
		"little was sent":  {1_000, 0.001, 100, 0, 1}, // the share counts
	} {
		c := fleet(3)
		c[0].Match = gpu(tt.cached, tt.cached)
		c[0].Recent, c[0].RecentRequests = tt.each*tt.requests, tt.requests
		c[1].Recent, c[1].RecentRequests = tt.each*tt.requests/2, tt.requests/2
		c[0].InFlight, c[1].InFlight = tt.inFlight, tt.inFlight
		c[2].Failing = true
		if got := pick(&p, 1, Request{Input: 4_000}, c); got[0] != tt.want {
			t.Errorf("%s: replica %d, want %d", name, got[0], tt.want)
		}
	}
	c := fleet(8) // one has just come
	for i := range 7 {
		c[i].Recent, c[i].RecentRequests = 100, 1_000
	}
	if c[7].Pending = 1.8 * p.Prefill(4_000, 0); pick(&p, 1, Request{Input: 4_000}, c)[0] != 7 {
		t.Error("a new replica gets none of the new prompts")
	}
	if c[7].Pending = 2 * p.Prefill(4_000, 0); pick(&p, 1, Request{Input: 4_000}, c)[0] == 7 {
		t.Error("new prompts queue at a new replica while others are idle")
	}
}

// TestNewPromptsBeginWhereLittleWasSent: a prompt that no replica has waits for the one that was sent
// less lately, if prompts go on from what is stored and the replicas are full; not one of which a
// replica has half.
func TestNewPromptsBeginWhereLittleWasSent(t *testing.T) {
	p := DefaultTTFT()
	for name, tt := range map[string]struct {
		reuse     float64
		inFlight  int
		elsewhere int // tokens that a third replica has, which waits for long
		want      int32
	}{
		"new, and full":         {4, 32, 0, 1},
		"nothing is used again": {0, 32, 0, 0},
		"few in flight":         {4, 2, 0, 0},
		"half is somewhere":     {4, 32, 2_500, 0},
		"little is somewhere":   {4, 32, 500, 1},
	} {
		c := fleet(3)
		for i := range c {
			c[i].InFlight, c[i].Recent, c[i].RecentRequests = tt.inFlight, 10, 100
		}
		c[0].Recent = 14
		c[1].Pending = 2 * p.Prefill(4_000, 0)
		c[2].Pending, c[2].Match = 100, gpu(tt.elsewhere, tt.elsewhere)
		if got := pick(&p, 1, Request{Input: 4_000, Reuse: tt.reuse}, c); got[0] != tt.want {
			t.Errorf("%s: replica %d, want %d", name, got[0], tt.want)
		}
	}
}

// TestPromptsAreComputedBesideFewAnswers: a prompt is computed where fewer answers stand still meanwhile,
// even behind a short queue; not where it is cached elsewhere, nor where many are in flight everywhere.
func TestPromptsAreComputedBesideFewAnswers(t *testing.T) {
	p := DefaultTTFT()
	for name, tt := range map[string]struct {
		here, there, cached int
		want                int32
	}{
		"alike":              {2, 2, 0, 0},
		"fewer there":        {3, 1, 0, 1},
		"fewer, but cached":  {3, 1, 3_500, 0},
		"many, fewer there":  {96, 32, 0, 0},
		"nobody has any yet": {0, 0, 0, 0},
	} {
		c := fleet(2)
		c[0].InFlight, c[1].InFlight = tt.here, tt.there
		c[0].Match = gpu(tt.cached, tt.cached)
		c[1].Pending = 0.3 * p.Prefill(4_000, 0)
		p.Guard, p.BurstGuard = 0, 0
		if got := pick(&p, 1, Request{Input: 4_000}, c); got[0] != tt.want {
			t.Errorf("%s: replica %d, want %d", name, got[0], tt.want)
		}
	}
}

// TestSpaceCosts a part of the prefill, less the more requests are in flight, and nothing where
// it is switched off or all evict alike.
func TestSpaceCosts(t *testing.T) {
	p, c := DefaultTTFT(), fleet(2)
	c[0].Match = gpu(512, 512)
	p.Space = 1
	r := Request{Input: 2000, Reuse: 4}
	if got := pick(&p, 1, r, c); got[0] != 0 {
		t.Errorf("%d is best where nothing is evicted", got[0])
	}
	c[0].Space = 0.5
	if got := pick(&p, 1, r, c); got[0] != 1 {
		t.Errorf("%d is best where the other would evict what is used again", got[0])
	}
	scores := make([]Score, 2)
	p.Pick(nil, 1, r, c, scores)
	before := scores[0].Cost
	c[0].Space = 0
	p.Pick(nil, 1, r, c, scores)
	if got, want := before-scores[0].Cost, 0.5*(1+p.Lambda)*4*p.Prefill(2000, 512); math.Abs(got-want) > 1e-12 {
		t.Errorf("evictions cost %g, want %g", got, want)
	}
	c[0].Space = 0.5
	for i := range c {
		c[i].InFlight = 12
	}
	if got := pick(&p, 1, r, c); got[0] != 0 {
		t.Errorf("%d is best under load", got[0])
	}
	p.Space, c[0].InFlight, c[1].InFlight = 0, 0, 0
	if got := pick(&p, 1, r, c); got[0] != 0 {
		t.Errorf("%d is best without the price", got[0])
	}
}
