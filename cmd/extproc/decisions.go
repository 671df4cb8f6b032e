package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/index"
	"warmroute/internal/bound"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/peers"
	"warmroute/internal/peers/link"
	"warmroute/internal/tokens"
)

// maxPatch far exceeds a patch of every setting.
const maxPatch = 64 << 10

// decisions are made here, alone or together with other routers.
type decisions struct {
	log      *slog.Logger
	replicas *replicas
	book     *policy.Book
	decider  *decision.Decider
	ring     *decision.Ring
	peers    link.Config
	outbox   *peers.Outbox  // nil: nothing is shared
	link     *link.Link     // to the other routers; nil until it is open
	links    link.Collector // of link
}

// newDecisions makes what decides about the replicas that Envoys know.
func newDecisions(c Config, known decision.Fleet, k *replicas, log *slog.Logger, reg prometheus.Registerer) (_ *decisions, err error) {
	d := &decisions{log: log, replicas: k, ring: decision.NewRing(keptDecisions), peers: c.Peers}
	if d.book, err = policy.NewBook(c.policies()); err != nil {
		return nil, err
	}
	o := decision.Options{Ranked: c.Filter.named(), ReadsSalt: tokens.MessagesReadSalt}
	if c.Peers.Enabled() {
		d.outbox = peers.NewOutbox()
		o.Peers, o.Seed = d.outbox, c.Peers.Seed()
	}
	d.decider = decision.New(known, k.index, k.ledger, d.book, o)
	reg.MustRegister(append(d.decider.Collectors(), k.ledger, &d.links)...)
	return d, nil
}

// Run shares with the other routers, and wakes held requests, until ctx ends.
func (d *decisions) Run(ctx context.Context) error {
	return together(ctx, d.link.Run, func(ctx context.Context) error {
		return every(ctx, wakeEvery, func(time.Time) { d.decider.WakeHeld() })
	})
}

// wakeEvery is how late a held request may learn that it may go.
const wakeEvery = 50 * time.Millisecond

// notes says which replicas in s are able to do less than others, which policies give no hints, and
// what is wrong with the link.
func (d *decisions) notes(s *fleet.Snapshot) []string {
	notes := append(d.unableReplicas(s), d.disabledPolicies()...)
	if d.link != nil {
		notes = append(notes, d.link.Notes()...)
	}
	return notes
}

// disabledPolicies says which requests get no hint, so that nobody forgets it.
func (d *decisions) disabledPolicies() (notes []string) {
	c, _ := d.book.Config()
	all := d.book.Of().Policy == policy.NameDisabled
	var others []string // models with another policy than the rest
	for _, name := range slices.Sorted(maps.Keys(c.Models)) {
		if off := d.book.Of(name).Policy == policy.NameDisabled; off != all {
			others = append(others, strconv.Quote(name))
		}
	}
	others = bound.Notes(others, mostUnable, "further models")
	switch {
	case all && len(others) > 0:
		return []string{"policy.route_policy is disabled: only requests for these models get hints: " + strings.Join(others, ", ")}
	case all:
		return []string{"policy.route_policy is disabled: no request gets a hint"}
	case len(others) > 0:
		return []string{"policy.models: route_policy is disabled, and requests get no hint, for " + strings.Join(others, ", ")}
	}
	return nil
}

// unservedNames names the models that have settings or a tokenizer and that no replica serves or
// has served, once every replica has said what it serves: a misspelt name is obeyed nowhere.
func (d *decisions) unservedNames(s *fleet.Snapshot, tokens []ModelConfig) (notes []string) {
	all := s.All()
	if len(s.Replicas) == 0 || slices.ContainsFunc(all, func(r *fleet.Replica) bool { return len(r.Models) == 0 }) {
		return nil
	}
	check := func(name, where, what string) {
		if !slices.ContainsFunc(all, func(r *fleet.Replica) bool { return r.Model(name) != nil }) {
			notes = append(notes, fmt.Sprintf("%s: no replica serves or served %q, so that its %s has no effect: look at the name", where, name, what))
		}
	}
	c, _ := d.book.Config()
	for _, name := range slices.Sorted(maps.Keys(c.Models)) {
		check(name, "policy.models", "policy")
	}
	for i := range tokens {
		check(tokens[i].ID, "tokens.models", "tokenizer")
	}
	return bound.Notes(notes, mostUnable, "names that no replica serves")
}

// pages are the admin pages of settings, pressure and other routers.
func (d *decisions) pages() map[string]http.Handler {
	reset := func(w http.ResponseWriter, req *http.Request) {
		model := req.PathValue("model")
		d.decider.Pressure().Reset(model)
		if d.outbox != nil {
			d.outbox.PressureReset(model)
		}
		d.log.Info("pressure reset", "model", model)
		w.WriteHeader(http.StatusNoContent)
	}
	return map[string]http.Handler{
		"GET /policy":                 http.HandlerFunc(d.showPolicy),
		"GET /debug/peers":            http.HandlerFunc(d.showPeers),
		"PATCH /policy":               http.HandlerFunc(d.patchPolicy),
		"PATCH /policy/{model...}":    http.HandlerFunc(d.patchPolicy),
		"GET /pressure":               http.HandlerFunc(d.showPressure),
		"DELETE /pressure/{model...}": http.HandlerFunc(reset),
	}
}

func (d *decisions) showPolicy(w http.ResponseWriter, _ *http.Request) {
	c, version := d.book.Config()
	answer(w, map[string]any{"version": version, "default": c.Overrides, "models": c.Models})
}

func (d *decisions) showPressure(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{"models": d.decider.Pressure().All(index.Now())})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client has gone
}

// patchPolicy changes the settings of a model, or of the default policy.
func (d *decisions) patchPolicy(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxPatch))
	if err != nil {
		http.Error(w, "the patch is too large", http.StatusRequestEntityTooLarge)
		return
	}
	if model := req.PathValue("model"); model != "" && !d.knows(model) {
		http.Error(w, fmt.Sprintf("model: %q is served by no replica and has no settings", model), http.StatusNotFound)
		return
	}
	change, err := d.book.Patch(req.PathValue("model"), body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d.audit(change, req.RemoteAddr)
	answer(w, change)
}

// knows reports whether a replica serves the model or settings exist for it.
func (d *decisions) knows(model string) bool {
	c, _ := d.book.Config()
	_, set := c.Models[model]
	return set || slices.ContainsFunc(d.replicas.fleet.Snapshot().Replicas, func(rep *fleet.Replica) bool { return rep.Model(model) != nil })
}

// audit logs a change of the policies and sends it to other routers.
func (d *decisions) audit(c policy.Change, by string) {
	if len(c.Fields) > 0 {
		if all, _ := d.book.Config(); d.outbox != nil {
			d.outbox.PolicyChanged(all)
		}
		d.log.Info("policy changed", "version", c.Version, "model", c.Model, "changes", strings.Join(c.Fields, "; "), "by", by)
	}
}

// openPeers joins the other routers.
func (d *decisions) openPeers() (err error) {
	if d.outbox == nil {
		return nil
	}
	if d.link, err = link.Open(d.peers, peers.Options{Outbox: d.outbox, Ledger: d.replicas.ledger, Fleet: d.decider, Book: d.book}, d.log); err != nil {
		return err
	}
	d.links.Of(d.link)
	d.log.Info("sharing with other routers", "id", d.link.ID(), "fleet", d.peers.Fleet, "embedded", d.link.Addr())
	return nil
}

// showPeers answers GET /debug/peers.
func (d *decisions) showPeers(w http.ResponseWriter, _ *http.Request) {
	if d.link == nil {
		answer(w, map[string]any{"sharing": false})
		return
	}
	answer(w, map[string]any{"sharing": true, "link": d.link.State(), "notes": d.link.Notes()})
}
