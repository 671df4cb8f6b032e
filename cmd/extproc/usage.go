package main

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/cmd/extproc/internal/comparison"
	"warmroute/cmd/extproc/internal/outcome"
	"warmroute/cmd/extproc/internal/shortfall"
	"warmroute/filter"
	"warmroute/internal/decision"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/internal/tracefile"
)

// usageShare is the percentage of requests whose answers' usage Envoy shall read.
type usageShare struct{ percent atomic.Int64 }

// Set replaces the percentage, for later requests.
func (u *usageShare) Set(percent int) { u.percent.Store(int64(percent)) }

// draws reports whether the decision of that number is among the percentage. The draw can
// be repeated: what was drawn is a fair sample, and answers that are read for another
// reason are not.
func (u *usageShare) draws(seq uint64) bool {
	x := seq + 0x9e3779b97f4a7c15 // splitmix64: neighbours are drawn independently
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int64((x^x>>31)%100) < u.percent.Load()
}

// outcomes learns from the ends of requests, and from the replicas' counters.
type outcomes struct {
	log         *slog.Logger
	ids         *ids
	replicas    *replicas
	decisions   *decisions
	server      *outcome.Server
	usage       usageShare
	differences *outcome.Differences
	compared    *comparison.Comparison
	watch       *shortfall.Watch
	requests    *tracefile.Writer // nil without a trace file
}

func newOutcomes(c Config, t *ids, d *decisions, counted *filter.Metrics, log *slog.Logger, reg prometheus.Registerer) (_ *outcomes, err error) {
	o := &outcomes{log: log, ids: t, replicas: d.replicas, decisions: d, differences: outcome.NewDifferences(reg), watch: shortfall.New(shortfall.Options{})}
	o.usage.Set(c.usageShare())
	o.compared = comparison.New(reg, o.replicas.baseOf, o.usage.draws, time.Now)
	o.server = outcome.New(reg, o.replicas.baseOf, counted.ServedElsewhere, o.learn, o.compared.Add)
	reg.MustRegister(o.watch)
	o.requests, err = newTraceFile(c.Filter, o.replicas.fleet.Snapshot, log, reg)
	return o, err
}

// Run compares and writes until ctx ends.
func (o *outcomes) Run(ctx context.Context) error { return together(ctx, o.compare, o.requests.Run) }

// wantsUsage draws whether the usage of the answer to a request shall be read, which is
// sent to a replica. Replicas that are new or suspect are compared request by request, and
// so is every request whose answer tells settings that the replica's events do not contain.
func (o *outcomes) wantsUsage(seq uint64, replica string, telling bool) bool {
	return o.usage.draws(seq) || o.usage.percent.Load() > 0 && o.watch.Curious(replica, telling)
}

// learn takes an answer: it adds its usage to the record of its decision. If the predicted
// replica has served, it compares the usage with the prediction, and learns settings that the
// replica's events do not contain from it. Where the replica has counted another number of prompt
// tokens, the ids that are computed in process are compared. The answer to a prompt that another
// replica has computed tells nothing of what the serving one has cached.
func (o *outcomes) learn(a *outcome.Answer) {
	if asked, err := strconv.Atoi(a.Rank); err == nil && !a.Told {
		o.decisions.decider.RankAnswered(a.Replica, asked, a.Status)
	}
	u := &a.Usage
	if u.Known() && a.Decision != 0 {
		kept := &decision.Answered{Served: a.Replica, ActualPrompt: u.Prompt, FirstByte: a.FirstByte.Seconds()}
		if u.State == outcome.UsageComplete && a.Prefill == "" {
			cached := u.Cached
			kept.ActualCached = &cached
		}
		o.decisions.ring.Answer(a.Decision, a.RequestID, kept)
		o.requests.Counted(tracefile.Counted{
			Number: a.Decision, Prompt: u.Prompt, Cached: u.Cached, NoCached: u.State != outcome.UsageComplete, Output: u.Output,
			First: a.FirstByte, Took: a.Duration,
		})
	}
	s := o.replicas.fleet.Snapshot()
	o.learnHealth(s, a)
	if u.State == outcome.UsageUnread || !a.Followed() || s.Replica(a.Replica) == nil {
		return
	}
	o.differences.Count(a, s.Base(a.Replica))
	if u.Known() && u.Prompt != a.Prompt && a.Reported > 0 {
		o.ids.local.Suspect(s.Base(a.Replica))
	}
	if a.Prefill != "" {
		o.compareAnswer(s, shortfall.Answer{Replica: a.Replica, Known: u.Known()}) // with nothing to compare
		return
	}
	disproved := o.compareAnswer(s, shortfall.Answer{
		Replica: a.Replica, Head: o.decisions.ring.Head(a.Decision, a.RequestID), Known: u.State == outcome.UsageComplete,
		Reported: a.Reported, Prompt: a.Prompt, Counted: u.Prompt, Cached: u.Cached,
	})
	if u.Known() && a.Decision != 0 {
		n := decision.Counted{Prompt: u.Prompt, Cached: -1, Answer: u.Output}
		if u.State == outcome.UsageComplete {
			n.Cached = u.Cached
		}
		o.decisions.decider.Answered(a.Decision, a.RequestID, n, u.Prompt == a.Prompt, disproved)
	}
}

// learnHealth counts a request's end for the replicas that it tells of. Envoy names no ranks:
// all of a replica's have part in it.
func (o *outcomes) learnHealth(s *fleet.Snapshot, a *outcome.Answer) {
	count := func(addr string, failed, unseen bool) {
		o.replicas.account(s, addr, func(account *load.Account) { account.Logged(failed, unseen) })
	}
	if a.PassedOver {
		count(a.First(), true, true)
	}
	switch {
	case a.Failed != "":
		count(a.Failed, true, a.Broken)
	case a.Replica != "" && a.Status > 0 && a.Status < http.StatusBadRequest:
		count(a.Replica, false, false)
	}
}

// learnPrefill compares what a replica has counted of a prompt that it computed for another
// with the prediction for it.
func (o *outcomes) learnPrefill(p *filter.Prefilled) {
	s := o.replicas.fleet.Snapshot()
	if s.Replica(p.Replica) == nil {
		return
	}
	if p.Counted != p.Prompt && p.Reported > 0 {
		o.ids.local.Suspect(s.Base(p.Replica))
	}
	o.differences.Count(&outcome.Answer{
		Replica: p.Replica, Prompt: p.Prompt, Predicted: p.Predicted, Reported: p.Reported,
		Usage: outcome.Usage{State: outcome.UsageComplete, Prompt: p.Counted, Cached: p.Cached},
	}, s.Base(p.Replica))
	o.compareAnswer(s, shortfall.Answer{
		Replica: p.Replica, Head: o.decisions.ring.Head(p.Decision, p.ID), Known: true, Reported: p.Reported, Prompt: p.Prompt, Counted: p.Counted, Cached: p.Cached,
	})
}

// compareAnswer compares an answer with its replica's events. disproved: see shortfall.Watch.
func (o *outcomes) compareAnswer(s *fleet.Snapshot, a shortfall.Answer) (disproved bool) {
	if a.Known && a.Cached < a.Reported {
		o.replicas.account(s, a.Replica, (*load.Account).Missed)
	}
	change, changed, disproved := o.watch.Answered(a)
	if changed {
		o.doubt()
		o.logShortfall(change)
	}
	return disproved
}
