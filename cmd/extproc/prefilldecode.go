package main

import (
	"slices"
	"time"

	"warmroute/envoy"
	"warmroute/filter"
	"warmroute/internal/problems"
)

// PrefillDecodeConfig says how a prompt's KV cache gets from the replica that computes it to
// the one that answers. When it does is the policy's.
type PrefillDecodeConfig struct {
	Mode    filter.Transport `yaml:"mode"`     // off; pull: the router sends the prefill, and its kv_transfer_params to the other replica; header: llm-d's sidecar does all by x-prefiller-host-port
	MaxWait time.Duration    `yaml:"max_wait"` // mode pull: the longest wait for a prefill
}

func defaultPrefillDecode() PrefillDecodeConfig {
	return PrefillDecodeConfig{Mode: filter.TransportOff, MaxWait: 30 * time.Second}
}

func (c PrefillDecodeConfig) validate() error {
	var p problems.List
	p.Refuse(!slices.Contains([]filter.Transport{filter.TransportOff, filter.TransportPull, filter.TransportHeader}, c.Mode), "mode", "%q is none of off, pull, header", c.Mode)
	p.Refuse(c.MaxWait < time.Second || c.MaxWait > time.Hour-time.Second, "max_wait", "%v is not from 1s to 59m59s", c.MaxWait) // Envoy's limit is an hour
	return p.Err()
}

// envoy returns what Envoy does in this mode.
func (c PrefillDecodeConfig) envoy() envoy.Split {
	s := envoy.Split{On: c.Mode != filter.TransportOff}
	if c.Mode == filter.TransportPull {
		s.Wait = c.MaxWait
	}
	return s
}
