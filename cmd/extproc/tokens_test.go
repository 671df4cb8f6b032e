package main

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/fleet"
	"warmroute/internal/tokens"
)

// A request's text is shown to the replicas that may serve it, the tenant's own
// among them; the start-up conversations go to all.
func TestWhoIsAskedForTokens(t *testing.T) {
	r, err := newRouter(defaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	replica := func(addr, tenant, model string, ready bool) *fleet.Replica {
		return &fleet.Replica{Addr: addr, Tenant: tenant, Ready: ready, Version: "0.32.0", Models: []fleet.Model{{ID: model, Base: model, MaxLen: 9}}}
	}
	s := fleet.NewSnapshot(replica("10.0.0.1:80", "", "m", true), replica("10.0.0.2:80", "acme", "m", true), replica("10.0.0.3:80", "acme", "own", true),
		replica("10.0.0.4:80", "zoo", "m", true), replica("10.0.0.5:80", "", "m", false))
	urls := func(list []tokens.Endpoint) (out []string) {
		for _, e := range list {
			if e.Version != "0.32.0" || e.MaxLen != 9 {
				t.Errorf("endpoint %+v", e)
			}
			out = append(out, e.URL)
		}
		return out
	}
	for served, want := range map[tokens.Served]string{
		{Model: "m"}:                   "[http://10.0.0.1:80]",
		{Model: "m", Tenant: "acme"}:   "[http://10.0.0.1:80 http://10.0.0.2:80]",
		{Model: "m", Tenant: "other"}:  "[http://10.0.0.1:80]",
		{Model: "own", Tenant: "acme"}: "[http://10.0.0.3:80]",
		{Model: "own"}:                 "[]",
		{Model: "own", Tenant: "zoo"}:  "[]",
	} {
		if got := fmt.Sprint(urls(r.renderers(s, served))); got != want {
			t.Errorf("%+v: %s, want %s", served, got, want)
		}
	}
	if got := fmt.Sprint(urls(r.serving(s, "m"))); got != "[http://10.0.0.1:80 http://10.0.0.2:80 http://10.0.0.4:80]" {
		t.Errorf("all that serve it: %s", got)
	}
}
