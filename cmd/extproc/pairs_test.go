package main

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/filter"
	"warmroute/internal/fleet"
	"warmroute/render/testkit/must"
)

// TestWhyNoPair: roles, connectors, versions and block sizes decide who can pair.
func TestWhyNoPair(t *testing.T) {
	one := func(role fleet.Role, connector, version string, block int) *fleet.Replica {
		return &fleet.Replica{Addr: "10.0.0.1:8000", Configured: fleet.Configured{Role: role},
			Reported: fleet.Reported{Version: version, BlockSize: block, Transfer: fleet.Transfer{Connector: connector}}}
	}
	const (
		both, prefill, decode = fleet.RoleBoth, fleet.RolePrefill, fleet.RoleDecode
		differ                = "differ in KV connector, version or block size"
	)
	for name, tt := range map[string]struct {
		mode     filter.Transport
		replicas []*fleet.Replica
		want     string // "" = they pair
	}{
		"alike":                 {"pull", []*fleet.Replica{one(both, fleet.Nixl, "0.32.0", 16), one(both, fleet.Nixl, "0.32.0", 16)}, ""},
		"parts":                 {"pull", []*fleet.Replica{one(prefill, fleet.Nixl, "0.32.0", 16), one(decode, fleet.Nixl, "0.32.0", 16)}, ""},
		"nobody prefills":       {"pull", []*fleet.Replica{one(decode, fleet.Nixl, "", 0), one(decode, fleet.Nixl, "", 0)}, "all replicas with a KV connector have the role decode"},
		"nobody answers":        {"pull", []*fleet.Replica{one(prefill, fleet.Nixl, "", 0), one(prefill, fleet.Nixl, "", 0)}, "all replicas with a KV connector have the role prefill"},
		"alone":                 {"pull", []*fleet.Replica{one(both, fleet.Nixl, "", 0)}, "10.0.0.1:8000 is the only replica with a KV connector"},
		"no connector":          {"pull", []*fleet.Replica{one(both, "", "", 0), one(both, "", "", 0)}, "no replica has a known KV connector"},
		"one without connector": {"pull", []*fleet.Replica{one(prefill, "", "", 0), one(decode, fleet.Nixl, "", 0)}, "10.0.0.1:8000 is the only replica with a KV connector"},
		"other connectors":      {"header", []*fleet.Replica{one(prefill, fleet.Nixl, "", 0), one(decode, "MooncakeConnector", "", 0)}, differ},
		"pull over a store":     {"pull", []*fleet.Replica{one(prefill, "LMCacheConnectorV1", "", 0), one(decode, "LMCacheConnectorV1", "", 0)}, "mode pull needs NixlConnector, and the connector is LMCacheConnectorV1"},
		"header over a store":   {"header", []*fleet.Replica{one(prefill, "LMCacheConnectorV1", "", 0), one(decode, "LMCacheConnectorV1", "", 0)}, ""},
		"other versions":        {"pull", []*fleet.Replica{one(both, fleet.Nixl, "0.32.0", 16), one(both, fleet.Nixl, "0.33.0", 16)}, differ},
		"other blocks":          {"pull", []*fleet.Replica{one(both, fleet.Nixl, "0.32.0", 16), one(both, fleet.Nixl, "0.32.0", 32)}, differ},
		"two of three":          {"pull", []*fleet.Replica{one(both, fleet.Nixl, "0.32.0", 16), one(both, fleet.Nixl, "0.33.0", 16), one(both, fleet.Nixl, "0.33.0", 16)}, ""},
	} {
		if why := whyNoPair(tt.mode, tt.replicas); (why == "") != (tt.want == "") || !strings.Contains(why, tt.want) {
			t.Errorf("%s: %q, want %q", name, why, tt.want)
		}
	}
}

// TestWhyNothingIsSplit: a trial and another policy are told.
func TestWhyNothingIsSplit(t *testing.T) {
	for text, want := range map[string]string{
		"prefill_decode: {mode: off}":                                             "",
		"prefill_decode: {mode: pull}":                                            "",
		"prefill_decode: {mode: pull}\nfilter: {mode: shadow}":                    "because filter.mode is shadow",
		"prefill_decode: {mode: pull}\npolicy: {route_policy: filter-then-score}": "because policy.route_policy is filter-then-score",
	} {
		c := must.Get(parseConfig(t, text))(t)
		r := silentRouter(t, c, prometheus.NewRegistry())
		if got := strings.Join(r.unpairedModels(), " "); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
