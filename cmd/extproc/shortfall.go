package main

import (
	"context"
	"time"

	"warmroute/cmd/extproc/internal/shortfall"
	"warmroute/index"
	"warmroute/internal/fleet"
)

// compareEvery is how often predictions are compared with the replicas' reports:
// a few times per window of the comparison.
const compareEvery = 10 * time.Second

// compare compares predictions with reported hits until ctx ends.
func (r *router) compare(ctx context.Context) error {
	tick, often := time.NewTicker(compareEvery), time.NewTicker(learnEvery)
	defer tick.Stop()
	defer often.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-often.C:
			r.learnFromHits(r.fleet.Snapshot())
		case now := <-tick.C:
			for _, c := range r.watch.Look(now, r.readings(r.fleet.Snapshot())) {
				r.logShortfall(c)
			}
		}
	}
}

// learnEvery is how often the replicas' counters are given to the index, which
// learns from them settings that events do not contain.
const learnEvery = time.Second

func (r *router) learnFromHits(s *fleet.Snapshot) {
	for _, rep := range s.Replicas {
		for i := range rep.Load {
			l := &rep.Load[i]
			r.index.Hits(index.Holder{Replica: rep.Addr, Rank: l.Rank}, l.PrefixQueries, l.PrefixHits)
		}
	}
}

// readings are the counters of the replicas whose metrics have been read.
func (r *router) readings(s *fleet.Snapshot) []shortfall.Reading {
	var out []shortfall.Reading
	for _, rep := range s.Replicas {
		hits, ok := hitTokens(rep)
		if !ok {
			continue
		}
		out = append(out, shortfall.Reading{Replica: rep.Addr, Joined: rep.Joined, Predicted: float64(r.predicted(rep.Addr)), Hits: hits})
	}
	return out
}

// hitTokens is the number of tokens a replica reports to have found in its prefix cache, all ranks
// together.
func hitTokens(rep *fleet.Replica) (tokens float64, ok bool) {
	for i := range rep.Load {
		tokens += rep.Load[i].PrefixHits
	}
	return tokens, len(rep.Load) > 0
}

// logShortfall logs a flag that was raised or taken back.
func (r *router) logShortfall(c shortfall.Change) {
	if c.Flagged {
		r.log.Warn("a replica's cache hits are far below the predictions: its cache differs from its KV events, or the router reads them wrongly; see /debug/replicas",
			"replica", c.Replica, "predicted_tokens", int64(c.Predicted), "hit_tokens", int64(c.Hits))
		return
	}
	r.log.Info("a replica's cache hits match the predictions again", "replica", c.Replica)
}
