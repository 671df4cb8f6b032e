package filter

import (
	"context"
	"slices"

	"warmroute/internal/decision"
	"warmroute/render/openai"
)

// Explain is Route without effects: it returns the record of q's decision at
// this moment, by the same code. It charges, speculates, learns, records and
// counts nothing. It may request the token ids from a replica, as for a
// request.
func (r *Router) Explain(ctx context.Context, q *Query) decision.Record {
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	dry := *q
	dry.Dry = true
	start := r.o.Now()
	rec := s.begin()
	d := r.contained(ctx, start, &dry, s)
	s.result.Release()
	s.ask, s.rekeyed = decision.Ask{}, nil
	rec.ID, rec.At, rec.Tenant, rec.Route, rec.Reason = q.ID, start, q.Tenant, q.Route.String(), d.Reason
	rec.Took = r.o.Now().Sub(start)
	if rec.Asked != "" {
		rec.Why = r.decider.Missing(rec.Asked, q.Tenant, d.Reason)
	}
	out := *rec
	out.Candidates = slices.Clone(rec.Candidates)
	out.Explain()
	return out
}

// rekey returns the request's prompts under other models and without its salt. Hashing
// them takes from the budget of the decision.
func (s *scratch) rekey(req *openai.Request) func(*decision.View, bool) decision.Prompts {
	return func(mv *decision.View, salted bool) decision.Prompts {
		chosen, ok := s.ask.Prompts.(*tokenPrompts)
		if !ok || !salted && mv.Salt(req) == nil {
			return nil
		}
		p := &tokenPrompts{budget: chosen.budget}
		p.set(mv, req, chosen.prompts, chosen.most)
		if p.base != chosen.base { // to look for a namespace there would count as a request in it
			p.mix.Namespace = ""
		}
		if !salted {
			p.mix.CacheSalt = nil
		}
		s.rekeyed = p
		return p
	}
}

// Any names replicas for a request without a decision, for gateways without a
// balancer of their own. d keeps the reason; without such a replica nothing
// changes.
func (r *Router) Any(q *Query, d *decision.Decision) {
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	if to := r.decider.Any(q.Tenant, q.Subset, &s.work); to != "" {
		d.Chosen = to
	}
}
