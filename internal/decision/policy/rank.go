package policy

// ranking orders candidates that have been scored.
type ranking struct {
	cands   []Candidate
	scores  []Score
	ordinal uint64
	live    bool // context tokens in flight decide between equal costs
}

// best appends to ranked the indexes of the n best candidates, best first: by verdict,
// cost, the source of the match, requests in flight, and a hash that spreads equals over the fleet. n is small, so
// each candidate is one insertion into a short list.
func (r *ranking) best(ranked []int32, n int) []int32 {
	start := len(ranked)
	for i := range r.cands {
		at := len(ranked)
		for at > start && r.before(int32(i), ranked[at-1]) {
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

func (r *ranking) before(i, j int32) bool {
	a, b := &r.scores[i], &r.scores[j]
	if a.Verdict != b.Verdict {
		return a.Verdict < b.Verdict
	}
	if a.Cost != b.Cost {
		return a.Cost < b.Cost
	}
	c, d := &r.cands[i], &r.cands[j]
	if c.Match.Learned() != d.Match.Learned() {
		return d.Match.Learned()
	}
	if r.live && c.Live != d.Live {
		return c.Live < d.Live
	}
	if c.InFlight != d.InFlight {
		return c.InFlight < d.InFlight
	}
	return mix(r.ordinal^c.Hash) < mix(r.ordinal^d.Hash)
}

// mix returns the splitmix64 finalizer: rendezvous hashing of (ordinal, candidate).
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
	x = (x ^ (x >> 27)) * 0x94D049BB133111EB
	return x ^ (x >> 31)
}
