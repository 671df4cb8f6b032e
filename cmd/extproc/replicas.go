package main

import (
	"net/http"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/feed"
	"warmroute/internal/fleet"
	"warmroute/internal/kvevents"
	"warmroute/internal/load"
	"warmroute/internal/sessions"
)

// replicaView is one replica on /debug/replicas.
type replicaView struct {
	servedView
	Render   bool            `json:"render"`
	Synced   bool            `json:"synced"`
	KVEvents feed.State      `json:"kv_events,omitempty"`    // of a ready one
	Role     fleet.Role      `json:"role"`                   // its part in requests with prefill and decode on two replicas
	Store    string          `json:"shared_store,omitempty"` // the store of KV blocks that it shares with others, as configured or by its connector
	Transfer *fleet.Transfer `json:"transfer,omitempty"`     // how it hands KV blocks to others; nil: not known
	NoEvents string          `json:"no_events,omitempty"`    // why it has no subscription, or some ranks have none
	Ranks    []rankView      `json:"ranks"`
	Cached   cachedView      `json:"cached_tokens"`
}

// servedView is which replica it is, and what it serves.
type servedView struct {
	Address   string   `json:"address"`
	Name      string   `json:"name,omitempty"`
	Tenant    string   `json:"tenant,omitempty"`
	Ready     bool     `json:"ready"`
	Why       string   `json:"why,omitempty"` // not ready
	Joined    uint64   `json:"joined"`
	Version   string   `json:"version,omitempty"`
	BlockSize int      `json:"block_size"`
	Base      string   `json:"base_model,omitempty"`
	Models    []string `json:"models"` // the base model and its adapters
}

// cachedView holds predictions against the truth, in prompt tokens.
type cachedView struct {
	Predicted int64    `json:"predicted"`           // by this router, since the replica joined
	Reported  float64  `json:"reported_hits"`       // by the replica, since it started, all its traffic
	Shortfall *float64 `json:"shortfall,omitempty"` // share of the predicted tokens that was not hit, over the last complete window
	Suspect   bool     `json:"suspect"`             // the shortfall was large for 10 requests or several windows, and the replica counts as holding nothing
	Cause     string   `json:"cause,omitempty"`     // of the suspicion, by the usage of answers: tokens, cache
}

// rankView is one data-parallel rank.
type rankView struct {
	Rank     int              `json:"rank"`
	Blocks   int              `json:"blocks"` // held, by the index's count
	InFlight int              `json:"in_flight"`
	Awaiting int              `json:"awaiting_first_token"`
	Pending  float64          `json:"pending_prefill_seconds"`
	Running  float64          `json:"running_reported"`
	Waiting  float64          `json:"waiting_reported"`
	KVUsage  float64          `json:"kv_usage_reported"`
	Below    *belowView       `json:"below,omitempty"` // its blocks below the GPU, by the index's count; nil: none
	Loads    *loadsView       `json:"loads,omitempty"` // of blocks below the GPU, once some were
	Split    *load.Parts      `json:"split,omitempty"` // counts of its split requests; nil: there were none
	Events   *kvevents.Status `json:"events,omitempty"`
	Cache    *cacheView       `json:"cache,omitempty"`
	Sessions *sessions.Seen   `json:"sessions,omitempty"` // at work there; nil: none of its requests is held
}

// belowView has the blocks in each place.
type belowView struct {
	CPU     int `json:"cpu_blocks,omitempty"`
	Storage int `json:"storage_blocks,omitempty"` // its own and shared stores
}

// loadsView has the learned seconds to load a token from each place, with the number of
// loaded tokens on which they rest.
type loadsView struct {
	CPU     *loadView `json:"cpu,omitempty"`
	Storage *loadView `json:"storage,omitempty"`
	Shared  *loadView `json:"shared,omitempty"`
	Found   float64   `json:"found"` // share of the tokens that are credited without events of removals that the replica finds; 1 until it shows less
}

type loadView struct {
	Token  float64 `json:"seconds_each_token"`
	Tokens float64 `json:"tokens"`
}

func loadsOf(a *load.Account) *loadsView {
	of := func(t policy.Place) *loadView {
		tokens := a.LoadedTokens(t)
		if tokens == 0 {
			return nil
		}
		return &loadView{a.LoadTime(t), tokens}
	}
	v := loadsView{of(policy.CPU), of(policy.Storage), of(policy.Shared), a.Found()}
	if v == (loadsView{Found: 1}) {
		return nil
	}
	return &v
}

// moreOf adds to a rank's view what ranks without tiers and splits do not have.
func (k *replicas) moreOf(v *rankView, h index.Holder, a *load.Account) {
	if b := (belowView{k.index.TierHoldings(h, index.TierCPU), k.index.TierHoldings(h, index.TierStorage)}); b != (belowView{}) {
		v.Below = &b
	}
	if p := a.Parts(); p != (load.Parts{}) {
		v.Split = &p
	}
	v.Loads = loadsOf(a)
}

// cacheView describes the rank's cache groups, and the reliability of
// predictions of its hits.
type cacheView struct {
	Groups  string `json:"groups"`
	Assumed string `json:"assumed"` // the assumed settings that events do not contain
	Trust   string `json:"trust"`   // exact, inexact
	Why     string `json:"why,omitempty"`
}

// replicaPage answers GET /debug/replicas: {"replicas": [...]}.
func (r *router) replicaPage() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		supplies := map[string]feed.Replica{}
		for _, s := range r.replicas.feed.Status() {
			supplies[s.Addr] = s
		}
		views := []replicaView{}
		for _, rep := range r.replicas.fleet.Snapshot().Replicas {
			views = append(views, r.view(rep, supplies[rep.Addr]))
		}
		answer(w, map[string]any{"replicas": views})
	})
}

func (r *router) view(rep *fleet.Replica, supply feed.Replica) replicaView {
	v := replicaView{
		servedView: servedView{Address: rep.Addr, Name: rep.Name, Tenant: rep.Tenant, Ready: rep.Ready, Why: rep.Why, Joined: rep.Joined, Version: rep.Version,
			BlockSize: rep.BlockSize, Models: []string{}},
		Render: rep.Render, Synced: supply.Synced, Ranks: []rankView{},
	}
	v.Role, v.Store = rep.Role, rep.Store
	if rep.Transfer.From != "" {
		v.Transfer = &rep.Transfer
	}
	if rep.Ready {
		v.KVEvents = feed.StateOf(rep, supply)
	}
	v.NoEvents = rep.EventsRefused
	if supply.Refused != nil {
		v.NoEvents = supply.Refused.Error()
	}
	if len(rep.Models) > 0 {
		v.Base = rep.Models[0].Base
	}
	for _, m := range rep.Models {
		v.Models = append(v.Models, m.ID)
	}
	v.Cached.Predicted = r.outcomes.counted.Predicted(rep.Addr)
	_, v.Cached.Reported, _ = cacheTokens(rep)
	s := r.outcomes.watch.State(rep.Addr)
	if v.Cached.Suspect, v.Cached.Cause = s.Flagged, string(s.Cause); s.Complete {
		v.Cached.Shortfall = &s.Shortfall
	}
	for _, rank := range rep.Ranks {
		h := index.Holder{Replica: rep.Addr, Rank: rank}
		account := r.replicas.ledger.Of(h)
		rv := rankView{Rank: rank, Blocks: r.replicas.index.Holdings(h), InFlight: account.InFlight(), Awaiting: account.Awaiting(), Pending: account.Pending()}
		r.replicas.moreOf(&rv, h, account)
		if s, ok := r.decisions.decider.Working(h); ok {
			rv.Sessions = &s
		}
		if l, ok := rep.LoadOf(rank); ok {
			rv.Running, rv.Waiting, rv.KVUsage = l.Running, l.Waiting, l.KVUsage
		}
		for i := range supply.Ranks {
			if s := &supply.Ranks[i]; s.Rank == rank {
				rv.Events = &s.Status
				if g := s.Groups; g != nil {
					rv.Cache = &cacheView{Groups: g.Geometry, Assumed: g.Assumed, Trust: g.Trust.String(), Why: g.Trust.Why}
				}
			}
		}
		v.Ranks = append(v.Ranks, rv)
	}
	return v
}
