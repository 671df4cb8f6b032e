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
	counted     *filter.Metrics
	server      *outcome.Server
	usage       usageShare
	differences *outcome.Differences
	compared    *comparison.Comparison
	watch       *shortfall.Watch
	requests    *tracefile.Writer // nil without a trace file
}

func newOutcomes(c Config, t *ids, d *decisions, log *slog.Logger, reg prometheus.Registerer) *outcomes {
	o := &outcomes{log: log, ids: t, replicas: d.replicas, decisions: d, counted: filter.NewMetrics(reg), differences: outcome.NewDifferences(reg), watch: shortfall.New()}
	o.usage.Set(c.usageShare())
	o.compared = comparison.New(reg, o.replicas.baseOf, o.usage.draws, time.Now)
	o.server = outcome.New(reg, o.replicas.baseOf, o.counted.ServedElsewhere, o.learn, o.compared.Add)
	reg.MustRegister(o.watch)
	o.requests = newTraceFile(c.Filter, o.replicas.fleet.Snapshot, log, reg)
	return o
}

// forget drops what is known of a replica that has left.
func (o *outcomes) forget(replica string) {
	o.counted.Forget(replica)
	o.differences.Forget(replica)
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
	if !a.Told {
		if asked, err := strconv.Atoi(a.Rank); err == nil {
			o.decisions.decider.RankAnswered(a.Replica, asked, a.Status)
		}
		if a.GaveUp > 0 {
			o.decisions.decider.GaveUp(o.decisions.ring, a.Decision, a.RequestID, a.GaveUp)
		}
		o.decisions.decider.Replied(o.decisions.ring, a.Decision, a.RequestID, a.Replica, a.Status)
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
	if a.Status == http.StatusNotFound && a.Decision != 0 {
		o.replicas.fleet.Look(a.Replica)
	}
	s := o.replicas.fleet.Snapshot()
	o.learnHealth(s, a)
	if u.State == outcome.UsageUnread || !a.Followed() || s.Replica(a.Replica) == nil {
		return
	}
	disproved := o.compareAnswer(s, a)
	if u.Known() && a.Decision != 0 && a.Prefill == "" {
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
	o.replicas.ledger.Logged()
	count := func(addr string, failed bool) {
		o.replicas.account(s, addr, func(account *load.Account) { account.Logged(failed) })
	}
	if a.PassedOver {
		count(a.First(), true)
	}
	switch {
	case a.Failed != "":
		count(a.Failed, true)
		if a.Replica == "" || !load.Failure(a.Status) {
			o.replicas.account(s, a.Failed, (*load.Account).Broke)
		}
	case a.Replica != "" && a.Status > 0 && a.Status < http.StatusBadRequest:
		count(a.Replica, false)
	}
}

// learnPrefill compares what a replica has counted of a prompt that it computed for another
// with the prediction for it.
func (o *outcomes) learnPrefill(p *filter.Prefilled) {
	if s := o.replicas.fleet.Snapshot(); s.Replica(p.Replica) != nil {
		o.compareAnswer(s, &outcome.Answer{
			Replica: p.Replica, Decision: p.Decision, RequestID: p.ID, Prediction: outcome.Prediction{Prompt: p.Prompt, Predicted: p.Predicted, Reported: p.Reported},
			Usage: outcome.Usage{State: outcome.UsageComplete, Prompt: p.Counted, Cached: p.Cached},
		})
	}
}

// compareAnswer compares an answer with the prediction for it and its replica's events. disproved: see
// shortfall.Watch.
func (o *outcomes) compareAnswer(s *fleet.Snapshot, a *outcome.Answer) (disproved bool) {
	u := &a.Usage
	o.differences.Count(a, s.Base(a.Replica))
	if u.Known() && u.Prompt != a.Prompt && a.Reported > 0 {
		o.ids.local.Suspect(s.Base(a.Replica))
	}
	of := shortfall.Answer{Replica: a.Replica, Known: u.Known()} // with nothing to compare, if another replica computed the prompt
	if a.Prefill == "" {
		of = shortfall.Answer{
			Replica: a.Replica, Head: o.decisions.ring.Head(a.Decision, a.RequestID), Known: u.State == outcome.UsageComplete,
			Reported: a.Reported, Prompt: a.Prompt, Counted: u.Prompt, Cached: u.Cached,
		}
	}
	if of.Known && of.Cached < of.Reported {
		o.replicas.account(s, a.Replica, (*load.Account).Missed)
	}
	change, changed, disproved := o.watch.Answered(of)
	if changed {
		o.doubt()
		o.logShortfall(change)
	}
	return disproved
}

// compare compares predictions with reported hits until ctx ends.
func (o *outcomes) compare(ctx context.Context) error {
	return every(ctx, compareEvery, func(now time.Time) {
		s := o.replicas.fleet.Snapshot()
		o.judge(now, s, o.replicas.ledger.Claims())
	})
}

// compareEvery is the time between comparisons of the replicas' counters with the reports
// of their events. Counters are read as often.
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
