package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"warmroute/index"
	"warmroute/internal/certs"
	"warmroute/internal/indexrpc"
	"warmroute/internal/kvevents"
	"warmroute/internal/listen"
)

// options are the command line.
type options struct {
	print  bool
	tokens bool
	raw    bool

	endpoint string
	replay   string
	topic    string

	index   string
	access  indexrpc.Access
	replica string
	rank    int
	tenant  string
	model   string
	scheme  string
	window  time.Duration
	full    bool
	timeout time.Duration // of one call of the index
	backoff time.Duration // after a failed one
	again   time.Duration // between two connections to endpoint or replay

	metrics    string
	patience   time.Duration // with one scrape of metrics
	statsEvery time.Duration
	modelName  string
	tier       string
	ceiling    int

	admin string
}

const usage = `kvsub -replica IP:PORT -model NAME -hash-scheme tokens|engine|engine:NAME -endpoint tcp://HOST:PORT [-replay tcp://HOST:PORT] [-index HOST:PORT]
kvsub -print -endpoint tcp://HOST:PORT [-replay tcp://HOST:PORT] [-topic PREFIX] [-tokens | -raw]

Follows one vLLM's KV-cache events (--kv-events-config, publisher zmq).

`

// parse reads the command line. It names every problem at once.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := o.flags()
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(stderr, usage)
			f.SetOutput(stderr)
			f.PrintDefaults()
		}
		return o, err
	}
	if name, err := replicaName(o.replica); err == nil {
		o.replica = name
	}
	return o, o.validate(f.Args())
}

// replicaName returns the name by which the router knows the replica at ip:port. IPv6 may lack its
// brackets.
func replicaName(s string) (string, error) {
	at := max(0, strings.LastIndexByte(s, ':'))
	ip, err := netip.ParseAddr(strings.Trim(s[:at], "[]"))
	port, wrong := strconv.ParseUint(s[min(at+1, len(s)):], 10, 16)
	if err != nil || wrong != nil || port == 0 {
		return "", fmt.Errorf("-replica %q: is not ip:port, the address that the router uses", s)
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(port)).String(), nil
}

// flags returns the flags, which set o.
func (o *options) flags() *flag.FlagSet {
	f := flag.NewFlagSet("kvsub", flag.ContinueOnError)
	f.BoolVar(&o.print, "print", false, "write decoded events to standard output as JSON lines, report nothing")
	f.BoolVar(&o.tokens, "tokens", false, "with -print: token ids and extra keys too, not only their number; these are users' prompts")
	f.StringVar(&o.endpoint, "endpoint", "", "the publisher's event socket, tcp://host:port or ipc://path")
	f.StringVar(&o.replay, "replay", "", "its replay socket; empty = none: only new events are received")
	f.StringVar(&o.topic, "topic", "", "prefix of the topics to subscribe to; empty = all")
	f.StringVar(&o.index, "index", "127.0.0.1:9003", "the index's gRPC address")
	f.BoolVar(&o.access.TLS.Enabled, "index-tls", false, "connect to the index with TLS")
	f.StringVar(&o.access.TLS.CAFile, "index-ca", "", "authorities for the index's certificate, PEM; empty = the system's")
	f.StringVar(&o.access.TLS.CertFile, "index-cert", "", "client certificate for the index, PEM, read again at every handshake")
	f.StringVar(&o.access.TLS.KeyFile, "index-key", "", "its key, PEM")
	f.StringVar(&o.access.TLS.ServerName, "index-server-name", "", "the name in the index's certificate; empty = the host of -index")
	f.StringVar(&o.access.TokenFile, "index-token-file", "", "file with the bearer token for the index, read again every 10 s")
	f.StringVar(&o.replica, "replica", "", "the replica's name in the index: ip:port, the address that the router uses")
	f.IntVar(&o.rank, "rank", 0, "the data-parallel rank behind -endpoint")
	f.StringVar(&o.tenant, "tenant", "", "the replica's tenant; empty = shared")
	f.StringVar(&o.model, "model", "", "the base model's name")
	f.BoolVar(&o.raw, "raw", false, "with -print: the raw frames, for lab predict; they contain users' prompts")
	f.StringVar(&o.scheme, "hash-scheme", "", "what keys to report: tokens (a chain over token ids, computed here), engine (the engine's own hashes) or engine:NAME (the same, apart from engines of other names)")
	f.DurationVar(&o.window, "window", 100*time.Millisecond, "how long added blocks are collected before they are sent")
	f.DurationVar(&o.timeout, "rpc-timeout", 5*time.Second, "timeout of one call of the index, and of the last report")
	f.DurationVar(&o.backoff, "backoff", time.Second, "how long to wait after a failed call of the index")
	f.DurationVar(&o.again, "reconnect-after", 200*time.Millisecond, "how long to wait before a failed connection to -endpoint or -replay is tried again")
	f.BoolVar(&o.full, "kv-report-full", false, "the replica announces blocks again that it holds already (kv_cache_report_mode full)")
	f.StringVar(&o.metrics, "metrics", "", "vLLM's metrics page, e.g. http://127.0.0.1:8000/metrics; empty = no stats are reported")
	f.DurationVar(&o.statsEvery, "metrics-every", 10*time.Second, "how often to read the metrics page and report stats")
	f.DurationVar(&o.patience, "metrics-timeout", 5*time.Second, "timeout of one read of the metrics page")
	f.StringVar(&o.modelName, "metrics-model", "", "count only samples with this model_name, none without the label; empty = all")
	f.StringVar(&o.tier, "cache-tier", "auto", "cache whose usage is reported: kv, gpu, cpu, or auto, the first that exists")
	f.IntVar(&o.ceiling, "ceiling", 0, "requests running and waiting that count as full pressure; 0 = report no pressure")
	f.StringVar(&o.admin, "admin", "", "address of /metrics, /healthz and /readyz, e.g. 127.0.0.1:9091; empty = none")
	return f
}

func (o options) validate(rest []string) error {
	var problems []error
	need := func(ok bool, text string) {
		if !ok {
			problems = append(problems, errors.New(text))
		}
	}
	if len(rest) > 0 {
		problems = append(problems, fmt.Errorf("argument %q: kvsub has only flags, no arguments", rest[0]))
	}
	need(o.endpoint != "", "-endpoint: must be given, e.g. tcp://127.0.0.1:5557")
	for _, e := range [][2]string{{"endpoint", o.endpoint}, {"replay", o.replay}} {
		if err := kvevents.CheckEndpoint(e[1]); e[1] != "" && err != nil {
			problems = append(problems, fmt.Errorf("-%s: %w", e[0], err))
		}
	}
	need(o.replay == "" || o.replay != o.endpoint, "-replay: is that of -endpoint; events and replays have a port each")
	if o.print {
		return errors.Join(problems...)
	}
	need(!o.raw, "-raw: only with -print; frames are never reported")
	need(!o.tokens, "-tokens: only with -print; token ids are never reported")
	need(o.replica != "", "-replica: must be given, e.g. 10.0.0.1:8000, the address that the router uses")
	if _, err := replicaName(o.replica); o.replica != "" && err != nil {
		problems = append(problems, err)
	}
	need(o.model != "", "-model: must be given, the base model's name")
	if err := dialable(o.index); err != nil {
		problems = append(problems, fmt.Errorf("-index: %w", err))
	} else {
		problems = append(problems, o.accessProblems()...)
	}
	need(o.rank >= 0 && o.rank <= math.MaxInt32, fmt.Sprintf("-rank %d: must be between 0 and %d", o.rank, math.MaxInt32))
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"window", o.window}, {"rpc-timeout", o.timeout}, {"backoff", o.backoff}, {"reconnect-after", o.again}, {"metrics-every", o.statsEvery}, {"metrics-timeout", o.patience}} {
		need(d.value > 0, fmt.Sprintf("-%s %v: must be positive", d.flag, d.value))
	}
	need(o.ceiling >= 0, fmt.Sprintf("-ceiling %d: must not be negative", o.ceiling))
	if err := pageAddress(o.metrics); o.metrics != "" && err != nil {
		problems = append(problems, fmt.Errorf("-metrics: %w", err))
	}
	if err := listen.HostPort(o.admin); o.admin != "" && err != nil {
		problems = append(problems, fmt.Errorf("-admin: %w", err))
	}
	if !slices.Contains([]string{"auto", "kv", "gpu", "cpu"}, o.tier) {
		problems = append(problems, fmt.Errorf("-cache-tier %q: want auto, kv, gpu or cpu", o.tier))
	}
	if o.scheme == "" {
		need(false, "-hash-scheme: must be given, tokens, engine or engine:NAME")
	} else if o.scheme != index.SchemeTokens && !kvevents.IsEngineScheme(o.scheme) {
		problems = append(problems, fmt.Errorf("-hash-scheme %q: want tokens, engine or engine:NAME, NAME of letters, digits, dots, hyphens and underscores", o.scheme))
	}
	return errors.Join(problems...)
}

// dialable returns the reason why addr is not host:port of a server.
func dialable(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && (host == "" || port == "0") {
		return fmt.Errorf("%q lacks a host or a port to connect to", addr)
	}
	return listen.HostPort(addr)
}

// pageAddress returns the reason why a text is not the address of a page.
func pageAddress(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return fmt.Errorf("%q is no address such as http://127.0.0.1:8000/metrics", text)
	}
	if u.Port() == "" {
		return nil
	}
	return dialable(u.Host)
}

// accessProblems reports mistakes in the flags for the connection to the index.
func (o options) accessProblems() (problems []error) {
	need := func(ok bool, text string) {
		if !ok {
			problems = append(problems, errors.New(text))
		}
	}
	t := o.access.TLS
	need(t.Enabled || t == certs.ClientOptions{}, "-index-tls: must be given with -index-ca, -index-cert, -index-key or -index-server-name")
	need((t.CertFile == "") == (t.KeyFile == ""), "-index-cert, -index-key: one is given without the other")
	if len(problems) == 0 {
		if err := o.access.Validate(o.index); err != nil {
			problems = append(problems, fmt.Errorf("-index-token-file: the token would be sent to %s without encryption, give -index-tls", o.index))
		}
	}
	return problems
}
