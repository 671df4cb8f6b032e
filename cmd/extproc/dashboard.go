package main

import (
	"warmroute/cmd/extproc/internal/dashboard"
	"warmroute/index"
	"warmroute/internal/fleet"
)

// reading returns the replicas' counters and the router's own.
func (r *router) reading() dashboard.Reading {
	out := dashboard.Reading{Decided: map[string]dashboard.Decided{}}
	shadow := r.reloads.inForce().Filter.Mode == modeShadow
	for _, rep := range r.replicas.fleet.Snapshot().Replicas {
		if len(rep.Models) == 0 {
			continue
		}
		for _, rank := range rep.Ranks {
			account := r.replicas.ledger.Of(index.Holder{Replica: rep.Addr, Rank: rank})
			k := dashboard.Rank{Model: rep.Models[0].Base, Replica: rep.Addr, Joined: rep.Joined, Rank: rank, InFlight: account.InFlight(), Queued: account.Pending()}
			var l fleet.Load
			if l, k.Counted = rep.LoadOf(rank); k.Counted {
				k.Began = l.Began
				if shadow { // nothing is sent by hint
					k.InFlight = int(l.Running + l.Waiting)
				}
				k.Counters = dashboard.Counters{
					Hits: l.PrefixHits, Prompt: l.PrefixQueries, TTFT: l.TTFT, FirstTokens: l.FirstTokens,
					Queue: l.Queue, Prefill: l.Prefill, Decode: l.Decode,
				}
			}
			out.Ranks = append(out.Ranks, k)
		}
	}
	for id, decided := range r.counted.Decisions() {
		out.Decided[id] = dashboard.Decided{Model: r.replicas.baseOf(id), Decisions: decided}
	}
	out.Router.Seconds, out.Router.Requests = r.counted.Spent()
	out.Splits = r.decisions.decider.Splits()
	return out
}
