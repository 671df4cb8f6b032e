package filter

import (
	"context"
	"slices"

	"warmroute/internal/decision"
)

// Explain is Route without effects: the record of the decision that q would get
// now, by the same code. Nothing is charged, speculated, learned, recorded or
// counted. The token ids may be requested from a replica, as for a request.
func (r *Router) Explain(ctx context.Context, q *Query) decision.Record {
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	dry := *q
	dry.Dry = true
	start := r.o.Now()
	rec := &s.work.Record
	rec.Reset()
	d := r.contained(ctx, &dry, s)
	rec.ID, rec.At, rec.Tenant, rec.Route = q.ID, start, q.Tenant, q.Route.String()
	rec.Reason, rec.Chosen = d.Reason, d.Destination
	rec.Took = r.o.Now().Sub(start)
	out := *rec
	out.Candidates = slices.Clone(rec.Candidates)
	return out
}

// Any names replicas for a request without a decision, for gateways that
// have no balancer of their own. d keeps the reason;
// nothing changes when there is no such replica.
func (r *Router) Any(q *Query, d *decision.Decision) {
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	if to := r.decider.Any(q.Tenant, q.Subset, &s.work); to != "" {
		d.Destination = to
		r.metrics.anyway.Inc()
	}
}
