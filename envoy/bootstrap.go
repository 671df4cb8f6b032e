package envoy

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"warmroute/internal/certs"
)

// Version is the Envoy release with which the configurations are tested.
const Version = "1.40.0"

// Mode is how Envoy sends request bodies to warmroute
// (envoy.extensions.filters.http.ext_proc.v3.ProcessingMode.BodySendMode).
type Mode string

const (
	// Buffered sends a complete body. It is the default: it fails open and costs
	// least. Envoy answers 413 to bodies over the listener's buffer limit.
	Buffered Mode = "BUFFERED"
	// BufferedPartial sends at most the buffer limit; the rest passes. It fails
	// open; a body that was cut gets no hint, and Content-Length is dropped.
	BufferedPartial Mode = "BUFFERED_PARTIAL"
	// FullDuplex streams bodies through warmroute. When warmroute dies, requests in
	// flight are lost; later ones pass without a hint.
	FullDuplex Mode = "FULL_DUPLEX_STREAMED"
)

// Options describes one Envoy with one warmroute.
type Options struct {
	Listen  string   `yaml:"listen"`                // address for clients, host:port
	Admin   string   `yaml:"admin" applies:"envoy"` // Envoy's admin address, host:port
	ExtProc []string `yaml:"extproc"`               // `listen` of the routers, as Envoy reaches them; none = this router's
	Standby string   `yaml:"standby"`               // a second router, used while the health checks of `extproc` fail
	// TLS is how Envoy connects to the router, with files on Envoy's machine: enabled where the router's port has `tls`, and by
	// `enabled`. Without `ca_file` any certificate is taken, without `server_name` any of `ca_file`.
	TLS            certs.ClientOptions `yaml:"tls"`
	Mode           Mode                `yaml:"mode"`                    // how Envoy sends bodies: BUFFERED or BUFFERED_PARTIAL, which fail open, or FULL_DUPLEX_STREAMED
	MessageTimeout time.Duration       `yaml:"message_timeout"`         // longest wait for a decision; 0 = 150ms longer than `filter.token_budget`, at least 200ms
	IdleTimeout    time.Duration       `yaml:"idle_timeout"`            // how long a stream may be silent
	BodyLimit      int                 `yaml:"body_limit" unit:"bytes"` // longest body; in BUFFERED mode longer ones get 413
	Retries        *int                `yaml:"retries" unit:"retries"`  // how often a request is retried after a dead replica, first on the next of the hint
	ServedHeader   bool                `yaml:"served_header"`           // tell clients the serving replica in x-warmroute-served
	Served         bool                `yaml:"served"`                  // tell the router the serving replica with the response headers
	OperatorPaths  bool                `yaml:"operator_paths"`          // let clients reach the replicas' paths for operators, e.g. metrics, caches, sleep, adapters
	EngineHeaders  bool                `yaml:"engine_headers"`          // let X-Vllm-Priority and X-Session-ID reach the replicas, behind a trusted gateway that overwrites them
	AccessLog      string              `yaml:"access_log"`              // file of Envoy's access log in JSON; /dev/stdout and /dev/stderr = Envoy's own; "none" = none

	// UsageShare is the share of requests whose answers' usage Envoy reads, by a filter that it calls alpha. Left out, it is 10 in a trial and 0 otherwise.
	UsageShare *int `yaml:"usage_share,omitempty" unit:"percent"`

	XDS []string `yaml:"xds,omitempty" applies:"envoy"` // `xds.listen` of the routers; none = this router's

	Replicas     []string `yaml:"-"` // for a static configuration, host:port
	Fleet        Fleet    `yaml:"-"` // instead of Replicas, with their models and state
	XDSTLS       bool     `yaml:"-"` // the router's xds port uses TLS, with the files of TLS
	ReasonHeader bool     `yaml:"-"` // send clients the reason, in HeaderReason
	Split        Split    `yaml:"-"` // what requests need whose prefill runs elsewhere

	Hold time.Duration `yaml:"-"` // longest time for which the router holds a request; 0 = it holds none

	Pinged bool `yaml:"-"` // Envoys ping the router each second, also where nothing demands it

	ReplicaTLS   ReplicaTLS `yaml:"-"` // how Envoy connects to the replicas
	PathPrefixes []string   `yaml:"-"` // paths that may stand before those of the replicas
}

// TrialUsageShare is the share of requests whose answers' usage is read in a trial, in percent.
const TrialUsageShare = 10

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
	set(&o.AccessLog, "/dev/stdout")
	if o.MessageTimeout == 0 {
		o.MessageTimeout = 200 * time.Millisecond
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 10 * time.Minute
	}
	if o.BodyLimit == 0 {
		o.BodyLimit = 64 << 20
	}
	if o.Retries == nil {
		o.Retries = new(2)
	}
	return o
}

// MostMessageTimeout is the longest wait for a decision that Envoy takes.
const MostMessageTimeout = time.Hour

// Validate returns every problem of o, one sentence each.
func (o Options) Validate() error {
	o = o.WithDefaults()
	var errs []error
	refuse := func(bad bool, field, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
		}
	}
	check := func(field, addr string) {
		_, err := splitAddr(addr)
		refuse(err != nil, field, "%w", err)
	}
	bind := func(field, addr string) {
		at, err := splitAddr(addr)
		check(field, addr)
		refuse(err == nil && !isIP(at.Host), field, "%q is a name, and Envoy listens at an IP address", addr)
	}
	bind("listen", o.Listen)
	for i, a := range o.ExtProc {
		check(fmt.Sprintf("extproc[%d]", i), a)
	}
	for i, a := range o.XDS {
		check(fmt.Sprintf("xds[%d]", i), a)
	}
	if o.Admin != "" {
		bind("admin", o.Admin)
	}
	if o.Standby != "" {
		check("standby", o.Standby)
	}
	errs = append(errs, o.TLS.Validate("tls."))
	if o.TLS.ServerName != "" && o.TLS.CAFile == "" {
		errs = append(errs, fmt.Errorf("tls.server_name is %q, but without ca_file nothing is verified", o.TLS.ServerName))
	}
	for i, r := range o.Replicas {
		check(fmt.Sprintf("replicas[%d]", i), r)
	}
	refuse(o.Mode != Buffered && o.Mode != BufferedPartial && o.Mode != FullDuplex, "mode", "%q is none of BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX_STREAMED", o.Mode)
	refuse(o.MessageTimeout < time.Millisecond, "message_timeout", "%v is below 1ms", o.MessageTimeout)
	refuse(o.MessageTimeout > MostMessageTimeout, "message_timeout", "%v is above %v, Envoy's most", o.MessageTimeout, MostMessageTimeout)
	// Otherwise a frozen router would fail each request.
	refuse(o.IdleTimeout <= o.MessageTimeout, "idle_timeout", "%v ends requests before the longest wait for a decision, %v", o.IdleTimeout, o.MessageTimeout)
	refuse(o.BodyLimit < 1<<16, "body_limit", "%d bytes is below 65536", o.BodyLimit)
	refuse(o.BodyLimit > math.MaxInt32, "body_limit", "%d bytes is above 2147483647, the largest window of HTTP/2", o.BodyLimit)
	share := o.usageShare()
	refuse(share < 0 || share > 100, "usage_share", "%d is no percentage from 0 to 100", share)
	refuse(o.Split.Wait > 0 && o.Mode != Buffered, "mode", "only BUFFERED waits for a prefill on another replica, not %s", o.Mode)
	refuse(o.Split.Wait >= o.IdleTimeout, "idle_timeout", "%v ends requests before the longest wait for a prefill, %v", o.IdleTimeout, o.Split.Wait)
	refuse(o.Hold > 0 && o.Mode == FullDuplex, "mode", "FULL_DUPLEX_STREAMED holds no request")
	refuse(*o.Retries < 0, "retries", "%d is negative", *o.Retries)
	refuse(*o.Retries > math.MaxInt32, "retries", "%d is above 2147483647", *o.Retries)
	return errors.Join(errs...)
}

// isIP reports whether a host is an IP address.
func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

type addr struct {
	Host string
	Port int
}

func splitAddr(s string) (addr, error) {
	host, port, err := net.SplitHostPort(s)
	switch {
	case err != nil && strings.Count(s, ":") > 1:
		return addr{}, fmt.Errorf("%q is not host:port; an IPv6 address is written like %q", s, "[::1]:8000")
	case err != nil:
		return addr{}, fmt.Errorf("%q is not host:port", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return addr{}, fmt.Errorf("%q has no port between 1 and 65535", s)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String() // Envoy dials no IPv4 address in the form of IPv6
	}
	return addr{host, int(n)}, nil
}

// WriteBootstrap renders a complete Envoy bootstrap for o as YAML with comments.
func WriteBootstrap(w io.Writer, o Options) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("envoy: %w", err)
	}
	if len(o.fleet().Replicas) == 0 {
		return errors.New("envoy: replicas: there is none, so Envoy would have no upstream")
	}
	return execute(w, "bootstrap.yaml.tmpl", o.page(""))
}

// WriteDynamic renders a bootstrap that takes everything else from d. From ADS
// it connects to the router at o.XDS.
func WriteDynamic(w io.Writer, o Options, d Discovery) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("envoy: %w", err)
	}
	in := o.page(d)
	if len(o.XDS) == 0 && d == ADS {
		return errors.New("envoy: xds: there is no address, so Envoy would have no xDS server")
	}
	tls := o.TLS
	tls.Enabled = o.XDSTLS
	in["XDS"], in["XDSType"], in["XDSTLS"], in["IsADS"] = parseAll(o.XDS), clusterType(o.XDS), tls, d == ADS
	return execute(w, "dynamic.yaml.tmpl", in)
}

// usageShare returns the share in force, where a trial is not known.
func (o Options) usageShare() int {
	if o.UsageShare == nil {
		return 0
	}
	return *o.UsageShare
}

// fleet returns the replicas of o.
func (o Options) fleet() Fleet {
	if len(o.Fleet.Replicas) > 0 {
		return o.Fleet
	}
	return Serving(o.Replicas...)
}
