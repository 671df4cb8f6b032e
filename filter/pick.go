package filter

import (
	"errors"
	"fmt"
	"slices"

	"warmroute/internal/openai"
	"warmroute/internal/policy"
)

// pick ranks the candidates and charges the first.
func (r *Router) pick(q *Query, mv *modelView, s *scratch) Decision {
	r.gather(q, mv, s)
	if len(s.cands) == 0 {
		return Decision{Reason: ReasonEmptySubset}
	}
	deepest := 0
	for i := range s.cands {
		deepest = max(deepest, s.cands[i].Matched)
	}
	if deepest == 0 && !r.o.HintCold && !q.Pick {
		return Decision{Reason: ReasonNoMatch}
	}
	in := policy.Request{Input: s.rec.Tokens, Ordinal: r.ordinal.Add(1)}
	lease := new(Lease)
	r.charge.Lock()
	for i, at := range s.at {
		weigh(&s.cands[i], mv.caches[at].load)
	}
	s.ranked = r.o.Policy.Pick(s.ranked[:0], r.o.Ranked, in, s.cands, s.scores)
	best := &mv.caches[s.at[s.ranked[0]]]
	hit := s.cands[s.ranked[0]].Matched
	lease.charge(best.load, r.o.Policy.Prefill(in.Input, hit), in.Input)
	r.charge.Unlock()
	s.rec.Input, s.rec.Predicted = in, hit
	r.record(mv, s)
	return Decision{Reason: reasonOf(s, deepest), Destination: s.destination(mv, best), Rank: best.rankHeader(), Lease: lease}
}

// gather collects the candidates the query may use.
func (r *Router) gather(q *Query, mv *modelView, s *scratch) {
	s.cands, s.at = s.cands[:0], s.at[:0]
	for i := range mv.caches {
		if !inSubset(mv.caches[i].replica.Addr, q.Subset) {
			continue
		}
		s.at = append(s.at, int32(i))
		s.cands = append(s.cands, policy.Candidate{
			Hash: mv.caches[i].hash, Matched: s.matched[i].gpu, Lower: s.matched[i].lower,
		})
	}
	for len(s.scores) < len(s.cands) {
		s.scores = append(s.scores, policy.Score{})
	}
	s.scores = s.scores[:len(s.cands)]
}

// weigh reads the load of a candidate.
func weigh(c *policy.Candidate, l *Load) {
	c.InFlight, c.Awaiting = l.InFlight(), l.Awaiting()
	c.Pending, c.Live = l.Pending(), float64(l.Live())
}

// reasonOf names the outcome of a pick whose first is s.ranked[0].
func reasonOf(s *scratch, deepest int) Reason {
	best := s.cands[s.ranked[0]].Matched
	switch {
	case deepest == 0:
		return ReasonCold
	case best == deepest:
		return ReasonWarm
	}
	for i := range s.cands {
		if s.cands[i].Matched == deepest && s.scores[i].Verdict == policy.Ranked {
			return ReasonMoved
		}
	}
	return ReasonGuarded
}

// destination is the ranked list in the form Envoy reads: each address once.
// With a rank header set, only replicas that have that rank may follow: the
// header travels unchanged with a retry.
func (s *scratch) destination(mv *modelView, best *cache) string {
	s.dest = append(s.dest[:0], best.replica.Addr...)
	for n, i := range s.ranked[1:] {
		c := &mv.caches[s.at[i]]
		if !best.follows(c) || s.listed(mv, s.ranked[:n+1], c) {
			continue
		}
		s.dest = append(append(s.dest, ','), c.replica.Addr...)
	}
	return string(s.dest)
}

// follows reports whether a request meant for c may be retried on next.
func (c *cache) follows(next *cache) bool {
	return (len(c.replica.Ranks) > 1) == (len(next.replica.Ranks) > 1) && slices.Contains(next.replica.Ranks, c.rank)
}

func (s *scratch) listed(mv *modelView, ranked []int32, c *cache) bool {
	for _, i := range ranked {
		if mv.caches[s.at[i]].replica == c.replica {
			return true
		}
	}
	return false
}

func (c *cache) rankHeader() string {
	if len(c.replica.Ranks) <= 1 {
		return ""
	}
	return rankName(c.rank)
}

func (r *Router) record(mv *modelView, s *scratch) {
	for i, at := range s.at {
		c := &mv.caches[at]
		s.rec.Candidates = append(s.rec.Candidates, CandidateRecord{
			Replica: c.replica.Addr, Rank: c.rank, State: s.cands[i], Score: s.scores[i],
		})
	}
}

// parseReason translates why a body could not be read.
func parseReason(err error) Reason {
	var e *openai.Error
	if errors.As(err, &e) {
		return Reason(e.Reason)
	}
	return Reason(openai.UnreadableJSON)
}

// panicKind describes a panic without its text, which may quote a prompt.
func panicKind(p any) string { return fmt.Sprintf("%T", p) }
