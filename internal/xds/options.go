package xds

import (
	"path/filepath"

	"warmroute/internal/certs"
	"warmroute/internal/problems"
)

// Options are the addresses and files where Envoys read the fleet.
type Options struct {
	Listen string        `yaml:"listen"` // gRPC address; "" = off
	TLS    certs.Options `yaml:"tls"`    // TLS of that address
	// State is a folder for the last published state, for a router that restarts, and an Envoy that starts while it is dead.
	State string `yaml:"state"`
}

// Enabled reports whether anything is published.
func (o Options) Enabled() bool { return o.Listen != "" || o.State != "" }

// Validate returns every problem of o, one sentence each.
func (o Options) Validate() error {
	var p problems.List
	p.Refuse(o.State != "" && !filepath.IsAbs(o.State), "state", "%q is not an absolute path; Envoy reads files there, too", o.State)
	p.Add("tls.", o.TLS.Validate())
	return p.Err()
}
