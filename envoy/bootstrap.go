package envoy

import (
	"cmp"
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
	"warmroute/internal/problems"
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
	o.Listen = cmp.Or(o.Listen, "0.0.0.0:8080")
	if len(o.ExtProc) == 0 {
		o.ExtProc = []string{"127.0.0.1:9002"}
	}
	o.Mode = cmp.Or(o.Mode, Buffered)
	o.AccessLog = cmp.Or(o.AccessLog, "/dev/stdout")
	o.MessageTimeout = cmp.Or(o.MessageTimeout, 200*time.Millisecond)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 10*time.Minute)
	o.BodyLimit = cmp.Or(o.BodyLimit, 64<<20)
	o.Retries = cmp.Or(o.Retries, new(2))
	return o
}

// MostMessageTimeout is the longest wait for a decision that Envoy takes.
const MostMessageTimeout = time.Hour

// Validate returns every problem of o, one sentence each.
func (o Options) Validate() error {
	o = o.WithDefaults()
	var p problems.List
	check := func(field, addr string) {
		_, err := splitAddr(addr)
		p.Add(field+": ", err)
	}
	bind := func(field, addr string) {
		at, err := splitAddr(addr)
		p.Add(field+": ", err)
		p.Refuse(err == nil && !isIP(at.Host), field, "%q is a name, and Envoy listens at an IP address", addr)
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
	p.Add("", o.TLS.Validate("tls."))
	p.Refuse(o.TLS.ServerName != "" && o.TLS.CAFile == "", "tls.server_name", "is %q, but without ca_file nothing is verified", o.TLS.ServerName)
	for i, r := range o.Replicas {
		check(fmt.Sprintf("replicas[%d]", i), r)
	}
	p.Refuse(o.Mode != Buffered && o.Mode != BufferedPartial && o.Mode != FullDuplex, "mode", "%q is none of BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX_STREAMED", o.Mode)
	p.Refuse(o.MessageTimeout < time.Millisecond, "message_timeout", "%v is below 1ms", o.MessageTimeout)
	p.Refuse(o.MessageTimeout > MostMessageTimeout, "message_timeout", "%v is above %v, Envoy's most", o.MessageTimeout, MostMessageTimeout)
	// Otherwise a frozen router would fail each request.
	p.Refuse(o.IdleTimeout <= o.MessageTimeout, "idle_timeout", "%v ends requests before the longest wait for a decision, %v", o.IdleTimeout, o.MessageTimeout)
	p.Refuse(o.BodyLimit < 1<<16, "body_limit", "%d bytes is below 65536", o.BodyLimit)
	p.Refuse(o.BodyLimit > math.MaxInt32, "body_limit", "%d bytes is above 2147483647, the largest window of HTTP/2", o.BodyLimit)
	share := o.usageShare()
	p.Refuse(share < 0 || share > 100, "usage_share", "%d is no percentage from 0 to 100", share)
	p.Refuse(o.Split.Wait > 0 && o.Mode != Buffered, "mode", "only BUFFERED waits for a prefill on another replica, not %s", o.Mode)
	p.Refuse(o.Split.Wait >= o.IdleTimeout, "idle_timeout", "%v ends requests before the longest wait for a prefill, %v", o.IdleTimeout, o.Split.Wait)
	p.Refuse(o.Hold > 0 && o.Mode == FullDuplex, "mode", "FULL_DUPLEX_STREAMED holds no request")
	p.Refuse(*o.Retries < 0, "retries", "%d is negative", *o.Retries)
	p.Refuse(*o.Retries > math.MaxInt32, "retries", "%d is above 2147483647", *o.Retries)
	return p.Err()
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
