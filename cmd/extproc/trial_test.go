package main

import (
	"strings"
	"testing"

	"warmroute/filter"
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
