package main

import (
	"net/http"
	"strconv"
	"sync/atomic"

	"warmroute/cmd/extproc/internal/outcome"
	"warmroute/cmd/extproc/internal/shortfall"
	"warmroute/filter"
	"warmroute/index"
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

// wantsUsage draws whether the usage of the answer to a request shall be read, which is
// sent to a replica. Replicas that are new or suspect are compared request by request, and
// so is every request whose answer tells settings that the replica's events do not contain.
func (r *router) wantsUsage(seq uint64, replica string, telling bool) bool {
	return r.usage.draws(seq) || r.usage.percent.Load() > 0 && r.watch.Curious(replica, telling)
}

// learn takes an answer: it adds its usage to the record of its decision. If the predicted
// replica has served, it compares the usage with the prediction, and learns settings that the
// replica's events do not contain from it. Where the replica has counted another number of prompt
// tokens, the ids that are computed in process are compared. The answer to a prompt that another
// replica has computed tells nothing of what the serving one has cached.
func (r *router) learn(a *outcome.Answer) {
	if asked, err := strconv.Atoi(a.Rank); err == nil && !a.Told {
		r.decider.RankAnswered(a.Replica, asked, a.Status)
	}
	u := &a.Usage
	if u.Known() && a.Decision != 0 {
		kept := &decision.Answered{Served: a.Replica, ActualPrompt: u.Prompt, FirstByte: a.FirstByte.Seconds()}
		if u.State == outcome.UsageComplete && a.Prefill == "" {
			cached := u.Cached
			kept.ActualCached = &cached
		}
		r.ring.Answer(a.Decision, a.RequestID, kept)
		r.requests.Counted(tracefile.Counted{
			Number: a.Decision, Prompt: u.Prompt, Cached: u.Cached, NoCached: u.State != outcome.UsageComplete, Output: u.Output,
			First: a.FirstByte, Took: a.Duration,
		})
	}
	s := r.fleet.Snapshot()
	learnHealth(r.ledger, s, a)
	if u.State == outcome.UsageUnread || !a.Followed() || s.Replica(a.Replica) == nil {
		return
	}
	r.differences.Count(a, s.Base(a.Replica))
	if u.Known() && u.Prompt != a.Prompt && a.Reported > 0 {
		r.local.Suspect(s.Base(a.Replica))
	}
	if a.Prefill != "" {
		r.compareAnswer(s, shortfall.Answer{Replica: a.Replica, Known: u.Known()}) // with nothing to compare
		return
	}
	disproved := r.compareAnswer(s, shortfall.Answer{
		Replica: a.Replica, Head: r.ring.Head(a.Decision, a.RequestID), Known: u.State == outcome.UsageComplete,
		Reported: a.Reported, Prompt: a.Prompt, Counted: u.Prompt, Cached: u.Cached,
	})
	if u.Known() && a.Decision != 0 {
		n := decision.Counted{Prompt: u.Prompt, Cached: -1, Answer: u.Output}
		if u.State == outcome.UsageComplete {
			n.Cached = u.Cached
		}
		r.decider.Answered(a.Decision, a.RequestID, n, u.Prompt == a.Prompt, disproved)
	}
}

// learnHealth counts a request's end for the replicas that it tells of. Envoy names no ranks:
// all of a replica's have part in it.
func learnHealth(l *load.Ledger, s *fleet.Snapshot, a *outcome.Answer) {
	count := func(addr string, failed, unseen bool) {
		ofReplica(l, s, addr, func(account *load.Account) { account.Logged(failed, unseen) })
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
func (r *router) learnPrefill(p *filter.Prefilled) {
	s := r.fleet.Snapshot()
	if s.Replica(p.Replica) == nil {
		return
	}
	if p.Counted != p.Prompt && p.Reported > 0 {
		r.local.Suspect(s.Base(p.Replica))
	}
	r.differences.Count(&outcome.Answer{
		Replica: p.Replica, Prompt: p.Prompt, Predicted: p.Predicted, Reported: p.Reported,
		Usage: outcome.Usage{State: outcome.UsageComplete, Prompt: p.Counted, Cached: p.Cached},
	}, s.Base(p.Replica))
	r.compareAnswer(s, shortfall.Answer{
		Replica: p.Replica, Head: r.ring.Head(p.Decision, p.ID), Known: true, Reported: p.Reported, Prompt: p.Prompt, Counted: p.Counted, Cached: p.Cached,
	})
}

// compareAnswer compares an answer with its replica's events. disproved: see shortfall.Watch.
func (r *router) compareAnswer(s *fleet.Snapshot, a shortfall.Answer) (disproved bool) {
	if a.Known && a.Cached < a.Reported {
		ofReplica(r.ledger, s, a.Replica, (*load.Account).Missed)
	}
	change, changed, disproved := r.watch.Answered(a)
	if changed {
		r.doubt()
		r.logShortfall(change)
	}
	return disproved
}

// ofReplica calls f for the accounts of a replica.
func ofReplica(l *load.Ledger, s *fleet.Snapshot, replica string, f func(*load.Account)) {
	rep := s.Replica(replica)
	if rep == nil {
		return
	}
	for _, rank := range rep.Ranks {
		if account := l.Find(index.Holder{Replica: replica, Rank: rank}); account != nil {
			f(account)
		}
	}
}
