package policy

import "math"

// TTFT ranks candidates by what serving the request there costs in seconds:
//
//	h = min(matched, input-1); u = input - h
//	P = speed * (PrefillToken*u + PrefillPair*u*(h + u/2))    the request's own prefill
//	W = Pending + Foreign                                     prefill queued ahead of it
//	L = Lambda + Kappa * mean(Awaiting)                       price of its work to those behind
//	cost = W + (1+L)*P + Beta*DecodeToken*Live
//
// Candidates with more than Guard*mean(InFlight)+GuardAdd in flight are guarded
// out, unless all are: without the guard, Kappa collapses on one hot prefix.
type TTFT struct {
	PrefillToken float64 // s per uncached token; 35e-6 is an 8B model on an H100
	PrefillPair  float64 // s per (query, key) pair of attention
	DecodeToken  float64 // s per context token and decode step
	Lambda       float64
	Kappa        float64
	Beta         float64
	Guard        float64 // 0 = no guard
	GuardAdd     float64
	LowerTier    float64 // worth of a token in a lower tier against one on the GPU, 0 to 1
	AdapterLoad  float64 // s to load a LoRA adapter; twice that when one is evicted for it
}

// DefaultTTFT are the constants the simulations were tuned with: an 8B model on
// one H100. Errors of a factor of two in them change mean TTFT by about 1 %.
func DefaultTTFT() TTFT {
	return TTFT{
		PrefillToken: 35e-6, PrefillPair: 1e-9, DecodeToken: 5.2e-8,
		Lambda: 2, Kappa: 1, Beta: 20, Guard: 1.5, GuardAdd: 4,
		LowerTier: 0.75, AdapterLoad: 0.05,
	}
}

// Prefill is the modelled prefill time in seconds of a prompt of input tokens
// of which hit are cached. The last token is always computed.
func (t *TTFT) Prefill(input, hit int) float64 {
	h := float64(max(0, min(hit, input-1)))
	u := float64(input) - h
	return t.PrefillToken*u + t.PrefillPair*u*(h+u/2)
}

// Pick appends to ranked the indexes of the best candidates, best first, at
// most n, and fills scores, which has cands' length. It appends none when there
// is no candidate.
func (t *TTFT) Pick(ranked []int32, n int, r Request, cands []Candidate, scores []Score) []int32 {
	var inFlight, awaiting float64
	for i := range cands {
		inFlight += float64(cands[i].InFlight)
		awaiting += float64(cands[i].Awaiting)
	}
	count := float64(max(1, len(cands)))
	limit := math.Inf(1)
	if t.Guard > 0 {
		limit = t.Guard*inFlight/count + t.GuardAdd
	}
	lambda := t.Lambda + t.Kappa*awaiting/count
	for i := range cands {
		scores[i] = Score{Cost: t.cost(r, &cands[i], lambda), Verdict: verdict(&cands[i], limit)}
	}
	return rank(ranked, n, r.Ordinal, cands, scores)
}

func (t *TTFT) cost(r Request, c *Candidate, lambda float64) float64 {
	speed := c.Speed
	if speed <= 0 {
		speed = 1
	}
	hit := c.Matched + int(t.LowerTier*float64(max(0, c.Lower-c.Matched)))
	cost := c.Pending + c.Foreign + (1+lambda)*speed*t.Prefill(r.Input, hit) + t.Beta*t.DecodeToken*c.Live
	switch c.Adapter {
	case AdapterFree:
		cost += t.AdapterLoad
	case AdapterEvicted:
		cost += 2 * t.AdapterLoad
	}
	return cost
}

func verdict(c *Candidate, limit float64) Verdict {
	switch {
	case c.Failing:
		return Shunned
	case float64(c.InFlight) > limit:
		return LoadGuarded
	}
	return Ranked
}

// rank selects the n best: by verdict, then cost, then the least context in
// flight, then a hash that spreads equals over the fleet.
func rank(ranked []int32, n int, ordinal uint64, cands []Candidate, scores []Score) []int32 {
	start := len(ranked)
	for i := range cands {
		at := len(ranked)
		for at > start && before(int32(i), ranked[at-1], ordinal, cands, scores) {
			at--
		}
		if at-start >= n {
			continue
		}
		if len(ranked)-start < n {
			ranked = append(ranked, 0)
		}
		copy(ranked[at+1:], ranked[at:len(ranked)-1])
		ranked[at] = int32(i)
	}
	return ranked
}

func before(i, j int32, ordinal uint64, cands []Candidate, scores []Score) bool {
	a, b := &scores[i], &scores[j]
	if a.Verdict != b.Verdict {
		return a.Verdict < b.Verdict
	}
	if a.Cost != b.Cost {
		return a.Cost < b.Cost
	}
	if cands[i].Live != cands[j].Live {
		return cands[i].Live < cands[j].Live
	}
	if cands[i].InFlight != cands[j].InFlight {
		return cands[i].InFlight < cands[j].InFlight
	}
	return mix(ordinal^cands[i].Hash) < mix(ordinal^cands[j].Hash)
}

// mix is the splitmix64 finalizer: rendezvous hashing of (ordinal, candidate).
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
	x = (x ^ (x >> 27)) * 0x94D049BB133111EB
	return x ^ (x >> 31)
}
