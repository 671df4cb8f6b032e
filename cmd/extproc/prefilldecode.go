package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/envoy"
	"warmroute/filter"
	"warmroute/internal/prefill"
)

// PrefillDecodeConfig says how a prompt's KV cache gets from the replica that computes it to
// the one that answers. When it does is the policy's.
type PrefillDecodeConfig struct {
	Mode    filter.Transport `yaml:"mode"`     // off; pull: the router sends the prefill and gives its kv_transfer_params to the other replica; header: llm-d's sidecar does all by the header x-prefiller-host-port
	MaxWait time.Duration    `yaml:"max_wait"` // mode pull: the longest wait for a prefill; a policy's own is often shorter
}

func defaultPrefillDecode() PrefillDecodeConfig {
	return PrefillDecodeConfig{Mode: filter.TransportOff, MaxWait: 30 * time.Second}
}

func (c PrefillDecodeConfig) validate() (errs []error) {
	switch c.Mode {
	case filter.TransportOff, filter.TransportPull, filter.TransportHeader:
	default:
		errs = append(errs, fmt.Errorf("prefill_decode.mode: %q is none of off, pull, header", c.Mode))
	}
	if c.MaxWait < time.Second || c.MaxWait > time.Hour-time.Second {
		errs = append(errs, fmt.Errorf("prefill_decode.max_wait: %v is not from 1s to 59m59s", c.MaxWait)) // Envoy's limit is an hour
	}
	return errs
}

// envoy returns what Envoy does in this mode.
func (c PrefillDecodeConfig) envoy() envoy.Split {
	s := envoy.Split{On: c.Mode != filter.TransportOff}
	if c.Mode == filter.TransportPull {
		s.Wait = c.MaxWait
	}
	return s
}

// legs returns how prefills are sent, to replicas that client reaches; nil: the same as before.
func (c Config) legs(client *http.Client, m *prefill.Metrics) prefill.Options {
	return prefill.Options{Client: client, URL: c.Fleet.HTTP.URL, Metrics: m}
}

// newLegs makes the sender of prefills.
func (r *router) newLegs(reg prometheus.Registerer) error {
	client, err := r.c.Fleet.HTTP.Client(prefill.Connections)
	if err != nil {
		return err
	}
	r.legCounts = prefill.NewMetrics(reg)
	o := r.c.legs(client, r.legCounts)
	o.Answers = &r.answers
	r.legs = prefill.New(o)
	return nil
}

// filterOptions returns c's options of the filter.
func (r *router) filterOptions(c Config) filter.ServerOptions {
	o := c.serverOptions(r.log)
	o.Split.Legs = r.legs
	return o
}
