package main

import (
	"net/http"

	"warmroute/internal/peers"
	"warmroute/internal/peers/link"
)

// sharing is this router's link to the others of its fleet, if any.
type sharing struct {
	outbox    *peers.Outbox // nil: nothing is shared
	link      *link.Link    // nil until run
	collector link.Collector
}

// openPeers joins the other routers.
func (r *router) openPeers() (err error) {
	if r.sharing.outbox == nil {
		return nil
	}
	r.sharing.link, err = link.Open(r.c.Peers, r.sharing.outbox, link.Around{Ledger: r.ledger, Fleet: r.decider, Book: r.book}, r.log)
	if err != nil {
		return err
	}
	r.sharing.collector.Of(r.sharing.link)
	r.log.Info("sharing with other routers", "id", r.sharing.link.ID(), "fleet", r.c.Peers.Fleet, "embedded", r.sharing.link.Addr())
	return nil
}

// policyChanged sends the settings in use to other routers.
func (r *router) policyChanged() {
	if r.sharing.outbox != nil {
		c, _ := r.book.Config()
		r.sharing.outbox.PolicyChanged(c)
	}
}

// showPeers answers GET /debug/peers.
func (r *router) showPeers(w http.ResponseWriter, _ *http.Request) {
	if r.sharing.link == nil {
		answer(w, map[string]any{"sharing": false})
		return
	}
	answer(w, map[string]any{"sharing": true, "link": r.sharing.link.State(), "notes": r.sharing.link.Notes()})
}
