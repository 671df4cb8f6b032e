package main

import (
	"net/http"

	"warmroute/cmd/extproc/internal/dashboard"
	"warmroute/index"
)

// dashboardFiles returns the dashboard's page and its files, which contain no data.
func dashboardFiles() map[string]http.Handler {
	const at = "/dashboard/"
	return map[string]http.Handler{"GET " + at: dashboard.Page(at)}
}

// counters returns the fleet's numbers by base model: the router's requests in
// flight, and the replicas' counters.
func (r *router) counters() map[string]dashboard.Counters {
	out := map[string]dashboard.Counters{}
	for _, rep := range r.fleet.Snapshot().Replicas {
		if len(rep.Models) == 0 {
			continue
		}
		c := out[rep.Models[0].Base]
		for _, rank := range rep.Ranks {
			account := r.ledger.Of(index.Holder{Replica: rep.Addr, Rank: rank})
			c.InFlight += account.InFlight()
			c.Queued += account.Pending()
			if l, ok := rep.LoadOf(rank); ok {
				c.Hits, c.Queries = c.Hits+l.PrefixHits, c.Queries+l.PrefixQueries
				c.TTFTSum, c.TTFTCount = c.TTFTSum+l.TTFTSum, c.TTFTCount+l.TTFTCount
			}
		}
		out[rep.Models[0].Base] = c
	}
	return out
}
