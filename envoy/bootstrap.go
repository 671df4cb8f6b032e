package envoy

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"text/template"
	"time"
)

// Version is the Envoy release the configurations are tested against.
const Version = "1.40.0"

// Mode is how Envoy hands request bodies to warmroute
// (envoy.extensions.filters.http.ext_proc.v3.ProcessingMode.BodySendMode).
type Mode string

const (
	// Buffered sends a body whole. The default: it fails open and costs least.
	// Bodies over the listener's buffer limit are answered 413 by Envoy.
	Buffered Mode = "BUFFERED"
	// BufferedPartial sends at most the buffer limit and lets the rest pass. It
	// fails open; a body that was cut gets no hint, and Content-Length is dropped.
	BufferedPartial Mode = "BUFFERED_PARTIAL"
	// FullDuplex streams bodies through warmroute. Requests in flight are lost
	// with it; those that come later pass without a hint.
	FullDuplex Mode = "FULL_DUPLEX_STREAMED"
)

// Options describes one Envoy beside one warmroute.
type Options struct {
	Listen         string        `yaml:"listen"`          // address clients use, host:port; default 0.0.0.0:8080
	Admin          string        `yaml:"admin"`           // Envoy's admin address; "" = none
	ExtProc        []string      `yaml:"extproc"`         // warmroute's gRPC addresses, which share the requests; default 127.0.0.1:9002
	Standby        string        `yaml:"standby"`         // a second warmroute, used while health checks find the first dead; "" = none
	TLS            TLS           `yaml:"tls"`             // towards warmroute
	Replicas       []string      `yaml:"replicas"`        // replica addresses, host:port
	Mode           Mode          `yaml:"mode"`            // default BUFFERED
	MessageTimeout time.Duration `yaml:"message_timeout"` // most a frozen warmroute can cost; default 200 ms
	IdleTimeout    time.Duration `yaml:"idle_timeout"`    // stream idle timeout; default 10 min
	BodyLimit      int           `yaml:"body_limit"`      // bytes; default 64 MiB
	Retries        int           `yaml:"retries"`         // default 2: the ranked list's second and third
	ServedHeader   bool          `yaml:"served_header"`   // tell clients which replica served, in HeaderServed
	Served         bool          `yaml:"served"`          // report the endpoint that really served (adds the response headers phase)
}

// TLS is how Envoy dials warmroute. Files are paths on Envoy's machine.
type TLS struct {
	Enabled bool   `yaml:"enabled"`
	CAFile  string `yaml:"ca_file,omitempty"` // who vouches for warmroute; "" = encrypted, not verified, as for a self-signed certificate
	// ServerName is the DNS name warmroute's certificate must carry; "" = any certificate of CAFile's.
	ServerName string `yaml:"server_name,omitempty"`
	CertFile   string `yaml:"cert_file,omitempty"` // Envoy's own, where warmroute demands one
	KeyFile    string `yaml:"key_file,omitempty"`
}

// WithDefaults returns o with its zero values replaced.
func (o Options) WithDefaults() Options {
	set := func(s *string, d string) {
		if *s == "" {
			*s = d
		}
	}
	set(&o.Listen, "0.0.0.0:8080")
	if len(o.ExtProc) == 0 {
		o.ExtProc = []string{"127.0.0.1:9002"}
	}
	set((*string)(&o.Mode), string(Buffered))
	if o.MessageTimeout == 0 {
		o.MessageTimeout = 200 * time.Millisecond
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 10 * time.Minute
	}
	if o.BodyLimit == 0 {
		o.BodyLimit = 64 << 20
	}
	if o.Retries == 0 {
		o.Retries = 2
	}
	return o
}

// Validate returns every problem of o, one sentence each.
func (o Options) Validate() error {
	o = o.WithDefaults()
	var errs []error
	check := func(field, addr string) {
		if _, err := splitAddr(addr); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
		}
	}
	check("listen", o.Listen)
	for i, a := range o.ExtProc {
		check(fmt.Sprintf("extproc[%d]", i), a)
	}
	if o.Admin != "" {
		check("admin", o.Admin)
	}
	if o.Standby != "" {
		check("standby", o.Standby)
	}
	if (o.TLS.CertFile == "") != (o.TLS.KeyFile == "") {
		errs = append(errs, errors.New("tls: cert_file and key_file belong together"))
	}
	if o.TLS.CAFile+o.TLS.CertFile != "" && !o.TLS.Enabled {
		errs = append(errs, errors.New("tls: files are named but enabled is false"))
	}
	if o.TLS.ServerName != "" && o.TLS.CAFile == "" {
		errs = append(errs, fmt.Errorf("tls.server_name is %q, but without ca_file nothing is verified", o.TLS.ServerName))
	}
	for i, r := range o.Replicas {
		check(fmt.Sprintf("replicas[%d]", i), r)
	}
	switch o.Mode {
	case Buffered, BufferedPartial, FullDuplex:
	default:
		errs = append(errs, fmt.Errorf("mode: %q is none of BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX_STREAMED", o.Mode))
	}
	if o.MessageTimeout < 0 || o.MessageTimeout < time.Millisecond {
		errs = append(errs, fmt.Errorf("message_timeout: %v is below 1ms", o.MessageTimeout))
	}
	if o.IdleTimeout < 0 {
		errs = append(errs, fmt.Errorf("idle_timeout: %v is negative", o.IdleTimeout))
	}
	if o.BodyLimit < 1<<16 {
		errs = append(errs, fmt.Errorf("body_limit: %d bytes is below 65536", o.BodyLimit))
	}
	if o.BodyLimit > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("body_limit: %d bytes is above 2147483647, the largest window of HTTP/2", o.BodyLimit))
	}
	if o.Retries < 0 {
		errs = append(errs, fmt.Errorf("retries: %d is negative", o.Retries))
	}
	return errors.Join(errs...)
}

type addr struct {
	Host string
	Port int
}

func splitAddr(s string) (addr, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return addr{}, fmt.Errorf("%q is not host:port", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return addr{}, fmt.Errorf("%q has no port between 1 and 65535", s)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return addr{host, int(n)}, nil
}

// noLimits lifts Envoy's circuit breakers far above what one process carries
// (a request costs Envoy some 10 kB, so 1e6 of them 10 GB).
const noLimits = "{max_connections: 1000000, max_pending_requests: 1000000, max_requests: 1000000, max_retries: 1000000}"

//go:embed bootstrap.yaml.tmpl
var bootstrapText string

var bootstrapTemplate = template.Must(template.New("bootstrap").Parse(bootstrapText))

// WriteBootstrap renders a complete Envoy bootstrap for o as YAML with comments.
func WriteBootstrap(w io.Writer, o Options) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("envoy: %w", err)
	}
	if len(o.Replicas) == 0 {
		return errors.New("envoy: replicas: there is none, so Envoy would have no upstream")
	}
	o = o.WithDefaults()
	in := map[string]any{
		"EnvoyVersion": Version, "Listen": parsed(o.Listen), "Mode": string(o.Mode),
		"MessageTimeout": seconds(o.MessageTimeout), "IdleTimeout": seconds(o.IdleTimeout),
		"BodyLimit": o.BodyLimit, "Retries": o.Retries, "Served": o.Served, "ServedHeader": o.ServedHeader, "HeaderServed": HeaderServed, "Owned": Owned[:],
		"HeaderDestination": HeaderDestination, "MetadataLB": MetadataLB, "MetadataServed": MetadataServed,
		"MetadataSubset": MetadataSubset, "AttributeUpstream": AttributeUpstream,
		"TLS": o.TLS, "NoLimits": noLimits,
	}
	routers := o.ExtProc
	if o.Standby != "" {
		in["Standby"] = parsed(o.Standby)
		routers = append(slices.Clone(routers), o.Standby)
	}
	in["ExtProc"], in["ExtProcType"] = parseAll(o.ExtProc), clusterType(routers)
	in["Replicas"], in["ClusterType"] = parseAll(o.Replicas), clusterType(o.Replicas)
	if o.Admin != "" {
		in["Admin"] = parsed(o.Admin)
	}
	if err := bootstrapTemplate.Execute(w, in); err != nil {
		return fmt.Errorf("envoy: render bootstrap: %w", err)
	}
	return nil
}

// parsed splits an address that was validated.
func parsed(s string) addr { a, _ := splitAddr(s); return a }

func parseAll(all []string) (out []addr) {
	for _, s := range all {
		out = append(out, parsed(s))
	}
	return out
}

// clusterType is STATIC where all addresses have an IP, STRICT_DNS where one has
// a name.
func clusterType(all []string) string {
	for _, s := range all {
		if _, err := netip.ParseAddr(parsed(s).Host); err != nil {
			return "STRICT_DNS"
		}
	}
	return "STATIC"
}

// seconds is d in the form protobuf's JSON mapping wants.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
