package tracing

import (
	"net"
	"time"

	"warmroute/internal/certs"
	"warmroute/internal/listen"
	"warmroute/internal/problems"
)

// Options is the destination of spans. The zero value disables them.
type Options struct {
	Endpoint string              `yaml:"endpoint"`      // OTLP/gRPC address of a collector, host:port
	TLS      certs.ClientOptions `yaml:"tls,omitempty"` // TLS to the collector, off by default

	timeout time.Duration // sendTimeout if 0; tests set it
	queue   int           // mostWaiting if 0; tests set it
}

const (
	serviceName = "warmroute"     // of the spans, unless OTEL_SERVICE_NAME names another
	sendTimeout = 5 * time.Second // longest wait for the collector to take a batch; then the batch is lost
	mostWaiting = 4096            // spans that wait to be sent; further ones are lost
)

// Enabled reports whether spans go anywhere.
func (o Options) Enabled() bool { return o.Endpoint != "" }

// Validate returns every problem of o, one sentence each.
func (o Options) Validate() error {
	var p problems.List
	host, port, err := net.SplitHostPort(o.Endpoint)
	p.Refuse(o.Endpoint != "" && (err != nil || host == "" || port == ""), "endpoint", "%q is not host:port%s", o.Endpoint, listen.Brackets(o.Endpoint))
	p.Refuse(o.Endpoint == "" && o.TLS.Enabled, "tls", "is given, but endpoint is empty, so that there are no traces")
	p.Add("", o.TLS.Validate("tls."))
	return p.Err()
}
