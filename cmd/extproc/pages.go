package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"warmroute/cmd/extproc/internal/dashboard"
	"warmroute/index"
	"warmroute/internal/admin"
	"warmroute/internal/bearer"
	"warmroute/internal/fleet"
)

// pages are the router's HTTP servers: the admin server, and the one of health if it has an
// address of its own.
type pages []*admin.Server

// dashboardAt is where the dashboard's page and its files are, which contain no data.
const dashboardAt = "/dashboard/"

// pages takes the addresses of the HTTP servers.
func (r *router) pages(c Config, gate *admin.Gate) (pages, error) {
	token, err := bearer.File(c.Admin.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("admin.%w", err)
	}
	health := admin.Options{
		Listen: c.Health.Listen, Ready: gate.Ready, Notes: r.notes, Metrics: r.metrics, Logger: r.log,
	}
	all := health
	all.Listen, all.Pprof, all.Static, all.Handlers = c.Admin.Listen, c.Admin.Pprof, map[string]http.Handler{"GET " + dashboardAt: dashboard.Page(dashboardAt)}, r.adminPages()
	all.Access = admin.Access{Token: token, Hosts: c.Admin.Hosts}
	all.Query = map[string][]string{
		"GET /debug/explain": {"id", "reason", "n"}, "POST /debug/explain": {"path", "tenant", "subset"},
		"GET /debug/history": {"after"},
	}
	first, err := admin.Listen(all)
	if err != nil {
		return nil, fmt.Errorf("admin.listen: %w", err)
	}
	if health.Listen == "" {
		return pages{first}, nil
	}
	second, err := admin.Listen(health)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("health.listen: %w", err), first.Close())
	}
	return pages{first, second}, nil
}

// adminPages returns the pages that change state or show requests.
func (r *router) adminPages() map[string]http.Handler {
	handlers := r.decisions.pages()
	maps.Copy(handlers, map[string]http.Handler{
		"GET /debug/explain":  explain(r.decisions.ring, r.decisions.decider.ExplainRecord, r.ids.view),
		"POST /debug/explain": explainNow(r.envoys.filter, r.reloads.inForce, r.ids.view),
		"GET /debug/replicas": r.replicaPage(),
		"GET /debug/history":  r.history,
		"GET /debug/trial":    r.trialPage(),
	})
	return handlers
}

// run serves until ctx ends.
func (p pages) run(ctx context.Context) error {
	var parts []func(context.Context) error
	for _, s := range p {
		parts = append(parts, s.Run)
	}
	return together(ctx, parts...)
}

// notes lists problems that do not prevent serving.
func (r *router) notes() []string {
	s := r.replicas.fleet.Snapshot()
	return slices.Concat(r.envoys.door.notes(), r.envoys.holdNotes(), r.replicas.notes(s), r.decisions.notes(s), r.decisions.unservedNames(s, r.reloads.inForce().Tokens.Models), r.xds.Notes(),
		r.ids.notes(s, time.Now()), r.tlsNotes(), r.refusedClients(), r.reloads.inForce().unreadTokens(), r.trialNotes(), r.outcomes.requests.Notes(), r.unpairedModels(), r.reloads.notes())
}

// reading returns the counters of the replicas in s, and the router's own.
func (r *router) reading(s *fleet.Snapshot) dashboard.Reading {
	out := dashboard.Reading{Decided: r.outcomes.counted.Decisions(), Splits: r.decisions.decider.Splits()}
	shadow := r.reloads.inForce().Filter.Mode == modeShadow
	for _, rep := range s.Replicas {
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
	out.Router.Seconds, out.Router.Requests = r.outcomes.counted.Spent()
	return out
}
