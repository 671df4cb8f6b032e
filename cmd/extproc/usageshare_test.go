package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"warmroute/render/testkit/must"
)

// TestBothSidesObey: Envoy waits as long as the router may take, and speaks TLS with a router's
// port as the router does there.
func TestBothSidesObey(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "200ms false",
		"filter: {token_budget: 300ms}": "450ms false",
		"filter: {token_budget: 10ms}":  "200ms false",
		"filter: {token_budget: 300ms}\nenvoy: {message_timeout: 1s}":    "1s false",
		"filter: {token_budget: 100ms}\nenvoy: {message_timeout: 200ms}": "200ms false",
		"tls: {self_signed: true}":                                       "200ms true",
		"xds: {tls: {self_signed: true}}\nenvoy: {tls: {enabled: true}}": "200ms false",
		"envoy: {tls: {enabled: true}, extproc: [10.0.0.1:1]}":           "200ms true",
	} {
		c := must.Get(parseConfig(t, text+"\nfleet: {replicas: [{address: \"10.0.0.1:8000\"}]}\n"))(t)
		if o := c.envoyOptions(); fmt.Sprint(o.MessageTimeout, o.TLS.Enabled) != want {
			t.Errorf("%q: %v %v, want %s", text, o.MessageTimeout, o.TLS.Enabled, want)
		}
	}
}

// TestUsageIsReadInTrials: Envoy's alpha filter is there in a trial, and where it is asked for.
func TestUsageIsReadInTrials(t *testing.T) {
	for text, want := range map[string]int{
		"":                       0,
		"filter: {mode: shadow}": 10,
		"filter: {share: 50}":    10,
		"filter: {mode: shadow}\nenvoy: {usage_share: 0}": 0,
		"filter: {share: 50}\nenvoy: {usage_share: 100}":  100,
		"envoy: {usage_share: 3}":                         3,
	} {
		c := must.Get(parseConfig(t, text+"\nfleet: {replicas: [{address: \"10.0.0.1:8000\"}]}\n"))(t)
		s := must.Get(c.xdsSettings())(t)
		if got := *s.Envoy.UsageShare; got != want || c.usageShare() != want {
			t.Errorf("%q: %d for Envoy and %d for the router, want %d", text, got, c.usageShare(), want)
		}
		var out bytes.Buffer
		if err := c.writeEnvoy(stdio{Out: &out}, true, false); err != nil || strings.Contains(out.String(), "ai_protocol_manager") != (want > 0) {
			t.Errorf("%q: the filter is there: %v, %v", text, want == 0, err)
		}
	}
}
