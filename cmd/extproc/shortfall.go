package main

import (
	"context"
	"time"

	"warmroute/cmd/extproc/internal/shortfall"
	"warmroute/index"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
)

// compare compares predictions with reported hits until ctx ends.
func (o *outcomes) compare(ctx context.Context) error {
	tick := time.NewTicker(compareEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			s := o.replicas.fleet.Snapshot()
			for _, rep := range s.Replicas {
				for i := range rep.Load {
					l := &rep.Load[i]
					o.replicas.index.Hits(index.Holder{Replica: rep.Addr, Rank: l.Rank}, l.PrefixQueries, l.PrefixHits)
				}
			}
			o.judge(now, s, o.replicas.ledger.Claims())
		}
	}
}

// compareEvery is the time between comparisons of the replicas' counters with the reports
// of their events. The index gets the counters too, and learns settings from them that
// events do not contain. Counters are read as often.
const compareEvery = time.Second

// judge compares claims with hits. A flagged replica counts as holding nothing until it has
// recovered.
func (o *outcomes) judge(now time.Time, s *fleet.Snapshot, claims map[string]load.Claims) {
	for _, c := range o.watch.Look(now, readings(s, claims)) {
		o.logShortfall(c)
	}
	o.doubt()
}

// doubt tells decisions which replicas are flagged.
func (o *outcomes) doubt() {
	o.replicas.ledger.Doubt(func(replica string) bool { return o.watch.State(replica).Flagged })
}

// readings returns the counters of the replicas; those whose metrics have not been read
// are 0 and have no page.
func readings(s *fleet.Snapshot, claims map[string]load.Claims) []shortfall.Reading {
	var out []shortfall.Reading
	for _, rep := range s.Replicas {
		queries, hits, ok := cacheTokens(rep)
		if !ok {
			out = append(out, shortfall.Reading{Replica: rep.Addr, Joined: rep.Joined})
			continue
		}
		c := claims[rep.Addr]
		out = append(out, shortfall.Reading{
			Replica: rep.Addr, Joined: rep.Joined, Predicted: float64(c.Tokens), Hits: hits, Queries: queries,
			Requests: c.Requests, Heads: c.Heads, Open: float64(c.Open), Page: rep.Load[0].At,
		})
	}
	return out
}

// cacheTokens returns the numbers of tokens that a replica reports to have looked up and found in
// its prefix cache, all ranks together.
func cacheTokens(rep *fleet.Replica) (queries, hits float64, ok bool) {
	for i := range rep.Load {
		queries, hits = queries+rep.Load[i].PrefixQueries, hits+rep.Load[i].PrefixHits
	}
	return queries, hits, len(rep.Load) > 0
}

// logShortfall logs a flag that was raised or taken back.
func (o *outcomes) logShortfall(c shortfall.Change) {
	if c.Flagged {
		o.log.Warn("a replica's cache hits are far below what its events report, so it counts as holding nothing: "+causes[c.Cause]+"; see /debug/replicas",
			"replica", c.Replica, "predicted_tokens", int64(c.Predicted), "hit_tokens", int64(c.Hits))
		return
	}
	o.log.Info("a replica's cache hits match its events again", "replica", c.Replica)
}

// causes says for people why a replica hits less than its events report.
var causes = map[shortfall.Cause]string{
	shortfall.CauseUnknown: "its cache differs from its KV events, or the router reads them wrongly",
	shortfall.CauseTokens:  "its answers count other numbers of prompt tokens than the router, which tokenizes otherwise",
	shortfall.CauseCache:   "its answers count as many prompt tokens as the router, so its cache differs from its KV events",
}
