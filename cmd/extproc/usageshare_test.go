package main

import (
	"bytes"
	"strings"
	"testing"
)

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
		c, err := parseConfig(t, text+"\nfleet: {replicas: [{address: \"10.0.0.1:8000\"}]}\n")
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.xdsSettings()
		if err != nil {
			t.Fatal(err)
		}
		if got := *s.Envoy.UsageShare; got != want || c.usageShare() != want {
			t.Errorf("%q: %d for Envoy and %d for the router, want %d", text, got, c.usageShare(), want)
		}
		var out bytes.Buffer
		if err := c.writeEnvoy(stdio{Out: &out}, true, false); err != nil || strings.Contains(out.String(), "ai_protocol_manager") != (want > 0) {
			t.Errorf("%q: the filter is there: %v, %v", text, want == 0, err)
		}
	}
}
