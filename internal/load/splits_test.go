package load

import (
	"math"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/fleet"
)

// TestHandoverConverges: from any prior, the learned times of moves become those that are
// seen, and follow when the connection changes; a few waits for room in the cache change
// little.
func TestHandoverConverges(t *testing.T) {
	l := NewLedger(nil)
	a := l.Of(index.Holder{Replica: "d"})
	if base, each := a.Handover(0.05, 1e-5); base != 0.05 || each != 1e-5 {
		t.Fatalf("before the first move: %g, %g", base, each)
	}
	now := int64(1e9)
	see := func(moves int, base, each float64) {
		for i := range moves {
			tokens := 500 + 1000*(i*7%16)
			expectedBase, expectedEach := a.Handover(0.05, 1e-5)
			terms := Terms{SplitTerms: SplitTerms{Moved: int64(tokens), Moving: int64((expectedBase + expectedEach*float64(tokens)) * 1e9)}}
			took := base + each*float64(tokens)
			if i%20 == 19 {
				took += 60 // it waited
			}
			now += 1e9
			a.handover.observe(&terms, now, now+int64(took*1e9))
		}
	}
	for _, real := range [][2]float64{{0.01, 2e-6}, {0.4, 1e-4}, {0.05, 0}} {
		see(300, real[0], real[1])
		for _, tokens := range []float64{1000, 8000} {
			base, each := a.Handover(0.05, 1e-5)
			want, got := real[0]+real[1]*tokens, base+each*tokens
			if math.Abs(got-want) > 0.25*want {
				t.Errorf("%v: a move of %g tokens takes %.4f s, learned %.4f s", real, tokens, want, got)
			}
			if base < 0 || each < 0 {
				t.Errorf("%v: %g s and %g s each token", real, base, each)
			}
		}
	}
}

// TestHandoverFromCounts: what a replica counted before this router saw a move is the first
// guess at the time for a token, and observed moves outweigh it.
func TestHandoverFromCounts(t *testing.T) {
	for name, c := range map[string]struct{ seconds, tokens, each float64 }{
		"nothing moved":     {0, 0, 1e-5},
		"too few tokens":    {1, countedLeast - 1, 1e-5},
		"no time":           {0, 1e6, 1e-5},
		"slower":            {4, 1e5, 4e-5},
		"beyond all reason": {1e300, 1e5, 1e-5 * countedJump},
		"in no time":        {1e-300, 1e5, 1e-5 / countedJump},
	} {
		a := NewLedger(nil).Of(index.Holder{Replica: "d"})
		a.Scrape(fleet.Load{Connector: fleet.Connector{MoveSeconds: c.seconds, LoadedTokens: c.tokens}, At: time.Unix(1, 0)}, true)
		if base, each := a.Handover(0.05, 1e-5); base != 0.05 || math.Abs(each-c.each) > 1e-9*c.each {
			t.Errorf("%s: %g, %g, want %g for each token", name, base, each, c.each)
		}
	}
	a := NewLedger(nil).Of(index.Holder{Replica: "d"})
	a.Scrape(fleet.Load{Connector: fleet.Connector{MoveSeconds: 4, LoadedTokens: 1e5}, At: time.Unix(1, 0)}, true)
	for i := range int64(100) {
		base, each := a.Handover(0.05, 1e-5)
		terms := Terms{SplitTerms: SplitTerms{Moved: 4000, Moving: int64((base + each*4000) * 1e9)}}
		a.handover.observe(&terms, i*1e9+1, i*1e9+1+9e7) // 0.05 s and 1e-5 s for each token
	}
	if base, each := a.Handover(0.05, 1e-5); math.Abs(base+each*4000-0.09) > 0.01 {
		t.Errorf("%g + 4000 × %g, want 0.09", base, each)
	}
}
