package main

import (
	"strings"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/filter"
)

func TestPrefillDecodeIsChecked(t *testing.T) {
	for want, change := range map[string]func(*Config){
		`prefill_decode.mode: "store" is none of off, pull, header`:                   func(c *Config) { c.PrefillDecode.Mode = "store" },
		`prefill_decode.max_wait: 1ms is not from 1s to 59m59s`:                       func(c *Config) { c.PrefillDecode.MaxWait = time.Millisecond },
		`prefill_decode.mode: is pull, which needs envoy.mode BUFFERED`:               func(c *Config) { c.PrefillDecode.Mode, c.Envoy.Mode = "pull", envoy.FullDuplex },
		`prefill_decode.max_wait: is 30s, but envoy.idle_timeout ends requests after`: func(c *Config) { c.PrefillDecode.Mode, c.Envoy.IdleTimeout = "pull", time.Second },
	} {
		c := defaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestEnvoyFollowsPrefillDecode: Envoy gets what a mode needs, and nothing without one.
func TestEnvoyFollowsPrefillDecode(t *testing.T) {
	for mode, want := range map[filter.Transport]envoy.Split{
		"off": {}, "header": {On: true}, "pull": {On: true, Wait: 30 * time.Second},
	} {
		c := defaultConfig()
		c.PrefillDecode.Mode = mode
		if got := c.envoyOptions().Split; got != want || c.serverOptions(nil, nil).Split.Transport != mode {
			t.Errorf("%s: %+v, want %+v", mode, got, want)
		}
	}
}
