package main

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/filter"
	"warmroute/internal/fleet"
)

// TestTrialSettings: every mistake is told with its field, and the rest reaches the
// server of Envoy's streams.
func TestTrialSettings(t *testing.T) {
	for text, want := range map[string]string{
		"mode: shade":                         `filter.mode: "shade" is none of route, shadow`,
		"mode: \"\"":                          `filter.mode: "" is none of route, shadow`,
		"share: 0":                            "filter.share: 0 is not above 0 and at most 100; mode shadow hints no request",
		"share: -1":                           "filter.share: -1 is not",
		"share: 100.5":                        "filter.share: 100.5 is not",
		"share: .nan":                         "filter.share: NaN is not",
		"share_by: X-User":                    `filter.share_by: "X-User" is not in lower case`,
		"opt_out_header: \":path\"":           `filter.opt_out_header: ":path" is set by Envoy`,
		"opt_out_header: a, share_by: a":      `filter.opt_out_header: "a" has another meaning`,
		"opt_out_header: a, tenant_header: a": `filter.opt_out_header: "a" has another meaning`,
		"always_pick: true, mode: shadow":     "filter.always_pick: it is for clusters without a balancer",
		"always_pick: true, share: 99":        "filter.always_pick: it is for clusters without a balancer",
	} {
		if _, err := parseConfig(t, "filter: {"+text+"}"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]filter.Trial{
		"":                                   {Share: 100, OptOut: "x-warmroute-opt-out"},
		"mode: shadow, opt_out_header: \"\"": {Shadow: true, Share: 100},
		"share: 0.5, share_by: x-tenant, tenant_header: x-tenant": {Share: 0.5, ShareBy: "x-tenant", OptOut: "x-warmroute-opt-out"},
		"always_pick: true": {},
	} {
		c, err := parseConfig(t, "filter: {"+text+"}")
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := c.serverOptions(nil, nil).Trial; got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

// TestInFlightInShadow: where nothing is sent by hint, the requests in flight are those that the
// replica reports.
func TestInFlightInShadow(t *testing.T) {
	replica := &fleet.Replica{Addr: "10.0.0.1:80", Ready: true, Ranks: []int{0}, Reported: fleet.Reported{Models: []fleet.Model{{ID: "m", Base: "m"}}}, Load: []fleet.Load{{Running: 3, Waiting: 2, At: time.Now()}}}
	for mode, want := range map[string]int{modeRoute: 0, modeShadow: 5} {
		c := defaultConfig()
		c.Filter.Mode = mode
		ranks := silentRouter(t, c, prometheus.NewRegistry()).reading(fleet.NewSnapshot(replica)).Ranks
		if len(ranks) != 1 || ranks[0].InFlight != want {
			t.Errorf("%s: %+v, want %d in flight", mode, ranks, want)
		}
	}
}
