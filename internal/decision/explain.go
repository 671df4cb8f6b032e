package decision

import (
	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/decision/why"
	"warmroute/internal/sessions"
)

// consider ranks the candidates as pick does, but charges and learns nothing, and counts no prompt
// as coming. A dry decision also gets what its record is asked for.
func (d *Decider) consider(a *Ask, mv *View, set *policy.Settings, w *Work, deepest int) Decision {
	d.ledger.Lock()
	reason := d.rank(a, mv, set, w)
	var work *sessions.Work
	if reason == "" {
		work, _, _ = d.admit(a, mv, set, w)
	}
	d.ledger.Unlock()
	w.record(mv)
	if a.Dry {
		d.explain(a, mv, w)
		for i, at := range w.at {
			w.Record.Candidates[i].Routers = mv.holders[at].account.Others()
		}
	}
	if reason != "" {
		return Decision{Reason: reason}
	}
	best := w.ranked[0]
	here := &mv.holders[w.at[best]]
	w.foresee(set, mv, best)
	return Decision{Reason: w.reason(a, mv, deepest), Choice: w.Record.Choice, Rank: w.rankHeader(mv, here), Reservation: d.await(a, mv, w, work)}
}

// explain records the candidates' cache groups, what ends their matches, and where more is
// cached.
func (d *Decider) explain(a *Ask, mv *View, w *Work) {
	d.explainGroups(a, mv, w)
	d.explainEnds(a, mv, w)
	found, untried := d.elsewhere(a, mv, w)
	w.Record.Why = &why.Answer{Elsewhere: found, Untried: untried}
}

// explainGroups records the cache groups of each candidate, for requests with one
// prompt.
func (d *Decider) explainGroups(a *Ask, mv *View, w *Work) {
	if a.Prompts == nil || a.Cacheless || a.Prompts.Len() != 1 {
		return
	}
	for i, at := range w.at {
		c, state := &mv.holders[at], &w.cands[i]
		w.prompt = onePrompt{of: a.Prompts, flight: index.Flight{Others: state.InFlight > 0 || state.Foreign > 0}}
		if state.Match[policy.Coming].Tokens > 0 {
			w.prompt.flight.Shared = state.Match.Matched()
		}
		if g, ok := d.index.ExplainGroups(c.id, mv.scopes[c.scope], &w.prompt); ok {
			w.Record.Candidates[i].Cache = &g
		}
	}
}

// number returns the decision's number: the next one, taken only by real decisions.
func (d *Decider) number(a *Ask) uint64 {
	if a.Dry {
		return d.ordinal.Load() + 1
	}
	return d.ordinal.Add(1)
}

// Rescore runs a policy on the recorded state of a decision. It returns the
// candidates' scores and the index of the winner, -1 if there is none. With the
// settings of that time it repeats the decision; with other settings it returns the
// decision that these would have taken.
func (rec *Record) Rescore(set *policy.Settings) (scores []policy.Score, winner int) {
	cands := make([]policy.Candidate, rec.scored())
	scores = make([]policy.Score, len(rec.Candidates))
	for i := range rec.Candidates {
		scores[i] = rec.Candidates[i].Score
	}
	for i := range cands {
		cands[i] = rec.Candidates[i].State
	}
	var ranked []int32
	rescored := scores[:len(cands)]
	if len(rec.Partners) == len(cands) && len(cands) > 0 {
		ranked, _ = set.PickApart(nil, 1, rec.Input, policy.Crowd{Cands: cands, Partners: rec.Partners, Answer: rec.answering()}, rescored)
	} else if ranked = set.Pick(nil, 1, rec.Input, cands, rescored); len(ranked) == 0 && rec.Chosen != "" { // the caller needed a pick
		ranked = set.TTFT.Pick(nil, 1, rec.Input, cands, rescored)
	}
	if len(ranked) == 0 {
		return scores, -1
	}
	return scores, int(ranked[0])
}
