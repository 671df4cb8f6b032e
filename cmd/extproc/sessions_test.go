package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/filter"
	"warmroute/internal/decision/policy"
)

func TestSessionsAreChecked(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"":                  func(*Config) {},
		"sessions.share: 1": func(c *Config) { c.Sessions.Share = 1 },
		"sessions.share: N": func(c *Config) { c.Sessions.Share = math.NaN() },
		"sessions.queue":    func(c *Config) { c.Sessions.Queue = 0 },
		"sessions.full":     func(c *Config) { c.Sessions.Full = "drop" },
		"sessions.max_wait": func(c *Config) { c.Sessions.MaxWait = time.Hour },
		"sessions.header":   func(c *Config) { c.Sessions.Header = "X-Session" },
		"filter.picker":     func(c *Config) { c.Filter.Picker = true },
		"FULL_DUPLEX":       func(c *Config) { c.Envoy.Mode = envoy.FullDuplex },
	} {
		c := defaultConfig()
		c.Sessions.Share = 0.1
		change(&c)
		err := c.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestSessionsAreOff: by default nothing of it reaches policy, filter and Envoy.
func TestSessionsAreOff(t *testing.T) {
	c := defaultConfig()
	c.Sessions.Header = "x-session"
	if p, o := c.policies(), c.serverOptions(nil, nil); p.Sessions != (policy.Sessions{}) || o.Hold != (filter.HoldOptions{Full: policy.Refuse}) || c.envoyOptions().Hold != 0 {
		t.Errorf("%+v, %+v", p.Sessions, o.Hold)
	}
	c.Sessions.Share = 0.1
	if p, o := c.policies(), c.serverOptions(nil, nil); p.Sessions != (policy.Sessions{Share: 0.1, Queue: 1024, Full: policy.Refuse}) ||
		o.Hold.MaxWait != 20*time.Minute || o.Hold.Header != "x-session" || c.envoyOptions().Hold != 20*time.Minute {
		t.Errorf("%+v, %+v", p.Sessions, o.Hold)
	}
}
