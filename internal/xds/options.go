package xds

import (
	"errors"
	"fmt"
	"path/filepath"

	"warmroute/internal/certs"
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
	var errs []error
	if o.State != "" && !filepath.IsAbs(o.State) {
		errs = append(errs, fmt.Errorf("state: %q is not an absolute path; Envoy reads files there, too", o.State))
	}
	if err := o.TLS.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("tls.%w", err))
	}
	return errors.Join(errs...)
}
