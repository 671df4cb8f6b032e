package tracing

import (
	"errors"
	"fmt"
	"net"
	"time"

	"warmroute/internal/certs"
	"warmroute/internal/listen"
)

// Options is the destination of spans. The zero value disables them.
type Options struct {
	Endpoint    string              `yaml:"endpoint"`           // OTLP/gRPC address of an OpenTelemetry collector, host:port; "" = no traces
	TLS         certs.ClientOptions `yaml:"tls,omitempty"`      // TLS to the collector; without it spans are not encrypted
	ServiceName string              `yaml:"service_name"`       // the service's name in the spans, their attribute service.name
	Timeout     time.Duration       `yaml:"timeout"`            // longest wait for the collector to take a batch; then the batch is lost
	Queue       int                 `yaml:"queue" unit:"spans"` // most spans that wait to be sent; further ones are lost
}

// DefaultOptions trace nothing.
func DefaultOptions() Options {
	return Options{ServiceName: "warmroute", Timeout: 5 * time.Second, Queue: 4096}
}

// Enabled reports whether spans go anywhere.
func (o Options) Enabled() bool { return o.Endpoint != "" }

// Validate returns every problem of o, one sentence each.
func (o Options) Validate() error {
	var errs []error
	if o.Endpoint != "" {
		if host, port, err := net.SplitHostPort(o.Endpoint); err != nil || host == "" || port == "" {
			errs = append(errs, fmt.Errorf("endpoint: %q is not host:port%s", o.Endpoint, listen.Brackets(o.Endpoint)))
		}
	}
	if o.ServiceName == "" {
		errs = append(errs, errors.New("service_name: is empty"))
	}
	if o.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("timeout: %v is not positive", o.Timeout))
	}
	if o.Queue <= 0 {
		errs = append(errs, fmt.Errorf("queue: %d is not positive", o.Queue))
	}
	if o.Endpoint == "" && o.TLS.Enabled {
		errs = append(errs, errors.New("tls: is given, but endpoint is empty, so that there are no traces"))
	}
	if err := o.TLS.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("tls.%w", err))
	}
	return errors.Join(errs...)
}
