package main

import (
	"errors"
	"fmt"
	"time"

	"warmroute/envoy"
	"warmroute/filter"
	"warmroute/internal/decision/policy"
	"warmroute/internal/problems"
)

// SessionsConfig says how cold prompts wait that would evict what sessions at work have cached.
type SessionsConfig struct {
	Share   float64       `yaml:"share" unit:"fraction"` // share of a replica's time that cold prompts may take from sessions at work; 0 = nothing is held, 0.1 is a good one
	Queue   int           `yaml:"queue" unit:"requests"` // most requests of a model that are held
	Full    policy.Full   `yaml:"full"`                  // refuse: 429 with Retry-After if the queue is full or max_wait is over, its place is kept; pass: it goes on without waiting
	MaxWait time.Duration `yaml:"max_wait"`              // longest time that a request is held
	Header  string        `yaml:"header"`                // request header with the session's id, in lower case; "" = prompts alone tell
}

func defaultSessions() SessionsConfig {
	return SessionsConfig{Queue: 1024, Full: policy.Refuse, MaxWait: 20 * time.Minute}
}

// maxHold leaves Envoy a margin below its own limit of an hour.
const maxHold = time.Hour - 2*time.Second

func (c SessionsConfig) validate() error {
	var p problems.List
	p.Refuse(!(c.Share >= 0 && c.Share < 1), "share", "%v is not from 0 to below 1", c.Share)
	p.Refuse(c.Queue <= 0, "queue", "%d is not positive", c.Queue)
	p.Refuse(c.Full != policy.Refuse && c.Full != policy.Pass, "full", "%q is none of refuse, pass", c.Full)
	p.Refuse(c.MaxWait < time.Second || c.MaxWait > maxHold, "max_wait", "%v is not from 1s to %v", c.MaxWait, maxHold)
	p.Add("header: ", validateTrustedHeader(c.Header))
	return p.Err()
}

// holdable returns why no request can be held with the rest of the configuration, nil: some can.
func (c Config) holdable() error {
	switch {
	case c.Sessions.Share == 0:
		return nil
	case c.Filter.Picker || c.Filter.AlwaysPick:
		return errors.New("sessions.share: is set, but with filter.picker or filter.always_pick no request is held")
	case c.Envoy.Mode == envoy.FullDuplex:
		return errors.New("sessions.share: is set, but with envoy.mode FULL_DUPLEX_STREAMED no request is held: a failure of the router would cost those that are")
	}
	return nil
}

// holds returns how the filter holds requests.
func (c SessionsConfig) holds() filter.HoldOptions {
	h := filter.HoldOptions{Full: c.Full}
	if c.Share > 0 {
		h.MaxWait, h.Header = c.MaxWait, c.Header
	}
	return h
}

// policies returns the settings of all models.
func (c Config) policies() policy.Config {
	p := c.Policy
	if c.Sessions.Share > 0 {
		p.Sessions = policy.Sessions{Share: c.Sessions.Share, Queue: c.Sessions.Queue, Full: c.Sessions.Full}
	}
	return p
}

// holdNotes says that an Envoy cuts holds.
func (e *envoys) holdNotes() []string {
	wait, is := e.server.Impatient()
	switch {
	case !is:
		return nil
	case wait == 0:
		return []string{"sessions.share is set, but an Envoy does not announce " + envoy.KeyHold + " in a buffered body mode, so none of its requests is held: print its configuration again"}
	}
	return []string{fmt.Sprintf("an Envoy waits %v for held requests (%s), less than sessions.max_wait: print its configuration again", wait, envoy.KeyHold)}
}
