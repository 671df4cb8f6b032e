package policy

import "math"

// Balance is the policy filter-then-score. It passes over candidates with more requests
// in flight than the least loaded one plus Abs, or than that one times Rel plus 1. Of the
// others, the candidate with the longest match gets the request if it holds at least
// MinMatch of the prompt (a hot match). Without a hot match the candidate with the
// smallest cache weight gets it. Equals go to the least loaded one, then spread.
type Balance struct {
	MinMatch float64 // share of the prompt, 0 to 1
	Abs      int     // requests
	Rel      float64 // 0 = no relative limit
}

// DefaultBalance returns the usual values in deployments of this policy.
func DefaultBalance() Balance { return Balance{MinMatch: 0.3, Abs: 2, Rel: 1.5} }

// Pick is TTFT.Pick by this policy, but appends no candidate if all are passed over.
func (b *Balance) Pick(ranked []int32, n int, r Request, cands []Candidate, scores []Score) []int32 {
	least := math.MaxInt
	for i := range cands {
		if !cands[i].Failing {
			least = min(least, cands[i].InFlight)
		}
	}
	limit := float64(least) + float64(b.Abs)
	if b.Rel > 0 {
		limit = min(limit, float64(least)*b.Rel+1)
	}
	for i := range cands {
		c := &cands[i]
		scores[i] = Score{Cost: b.cost(r, c), Verdict: verdict(c, limit)}
	}
	by := ranking{cands: cands, scores: scores, ordinal: r.Ordinal}
	start := len(ranked)
	ranked = by.best(ranked, n)
	if len(ranked) > start && scores[ranked[start]].Verdict != Ranked {
		return ranked[:start]
	}
	return ranked
}

// cost orders hot matches before cold ones, longest first.
func (b *Balance) cost(r Request, c *Candidate) float64 {
	if b.Hot(r, c) {
		return -float64(c.Match.Credited()) / r.matchable()
	}
	return c.CacheWeight
}

// Hot reports whether a candidate holds enough of the prompt to be preferred.
func (b *Balance) Hot(r Request, c *Candidate) bool {
	held := c.Match.Credited()
	return held > 0 && float64(held) >= b.MinMatch*r.matchable()
}

func (r *Request) matchable() float64 {
	if r.Matchable > 0 {
		return float64(r.Matchable)
	}
	return float64(max(1, r.Input))
}
