package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"warmroute/internal/admin"
)

// pages are the router's HTTP servers.
type pages struct {
	admin  *admin.Server
	health *admin.Server // the same server if health has no address of its own
}

// pages takes the addresses of the HTTP servers. door is where Envoys connect.
func (r *router) pages(gate *admin.Gate, door *occupied) (*pages, error) {
	c := r.c.Admin
	token, err := c.token()
	if err != nil {
		return nil, fmt.Errorf("admin.%w", err)
	}
	health := admin.Options{
		Listen: r.c.Health.Listen, Ready: gate.Ready, Notes: func() []string { return append(door.notes(), r.notes()...) }, Metrics: r.metrics, Logger: r.log,
	}
	all := health
	all.Listen, all.Pprof, all.Static, all.Handlers = c.Listen, c.Pprof, dashboardFiles(), r.adminPages()
	all.Access = admin.Access{Token: token, Hosts: c.Hosts}
	all.Query = map[string][]string{
		"GET /debug/explain": {"id", "reason", "n"}, "POST /debug/explain": {"path", "tenant", "subset"},
		"GET /debug/history": {"after"},
	}
	var p pages
	if p.admin, err = admin.Listen(all); err != nil {
		return nil, err
	}
	p.health = p.admin
	if health.Listen != "" {
		if p.health, err = admin.Listen(health); err != nil {
			return nil, errors.Join(err, p.admin.Close())
		}
	}
	return &p, nil
}

// adminPages returns the pages that change state or show requests.
func (r *router) adminPages() map[string]http.Handler {
	handlers := r.policyPages()
	maps.Copy(handlers, map[string]http.Handler{
		"GET /debug/explain":  explain(r.ring, r.decider.ExplainRecord, r.tokenView),
		"POST /debug/explain": explainNow(r.filter, r.reloads.inForce, r.tokenView),
		"GET /debug/replicas": r.replicas(),
		"GET /debug/history":  r.history,
		"GET /debug/trial":    r.trialPage(),
	})
	return handlers
}

// run serves until ctx ends.
func (p *pages) run(ctx context.Context) error {
	if p.health == p.admin {
		return p.admin.Run(ctx)
	}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return p.admin.Run(ctx) })
	both.Go(func() error { return p.health.Run(ctx) })
	return both.Wait()
}

// close releases the addresses without serving.
func (p *pages) close() error {
	if p.health == p.admin {
		return p.admin.Close()
	}
	return errors.Join(p.admin.Close(), p.health.Close())
}

// notes lists problems that do not prevent serving.
func (r *router) notes() []string {
	notes := r.pool.Notes()
	if r.sharing.link != nil {
		notes = append(notes, r.sharing.link.Notes()...)
	}
	notes = append(notes, r.sources().Notes()...)
	notes = append(append(append(notes, r.feed.Notes()...), r.xds.Notes()...), r.loading.notes()...)
	notes = append(append(notes, r.modelNotes(time.Now())...), r.trialNotes()...)
	s := r.fleet.Snapshot()
	notes = append(append(append(notes, r.unpairedModels()...), s.Dissent()...), r.tokenNotes(s)...)
	notes = append(notes, s.Notes...)
	return append(append(append(notes, r.reloads.notes()...), unservedModels(s)...), r.unableReplicas(s)...)
}
