package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/certs"
	"warmroute/internal/listen"
	"warmroute/internal/problems"
)

// Options states where replicas come from and how they are watched. The zero
// value of a duration or limit means its default, see [DefaultOptions].
type Options struct {
	Replicas []ReplicaOptions `yaml:"replicas,omitempty"` // replicas by address
	DNS      []DNSOptions     `yaml:"dns,omitempty"`      // replicas by DNS names

	// ScrapeInterval is how often each replica's /metrics is read.
	ScrapeInterval time.Duration `yaml:"scrape_interval"`
	// DeadAfter is how long a replica may answer nothing before it counts as down.
	DeadAfter time.Duration `yaml:"dead_after"`
	// EventHosts are other hosts that may publish replicas' KV events: addresses, networks ("10.0.0.0/8"), or names.
	EventHosts []string `yaml:"event_hosts,omitempty"`

	HTTP HTTPOptions `yaml:",inline"` // how replicas are contacted; plain HTTP by default

	Sources    []Source              `yaml:"-"` // further sources
	Templates  []ReplicaOptions      `yaml:"-"` // the settings of their replicas
	Served     map[string][]Model    `yaml:"-"` // by address, the models that replicas served last, by an earlier process: a replica that has not answered yet counts with them
	Registerer prometheus.Registerer `yaml:"-"` // nil: no metrics
	Logger     *slog.Logger          `yaml:"-"` // nil: no log
	Resolver   Resolver              `yaml:"-"` // nil: the system's
	Transport  http.RoundTripper     `yaml:"-"` // nil: one made from HTTP

	maxReplicas int // 0: maxReplicas; tests set it
}

// ReplicaOptions is one replica. Only Address is required; the other fields override
// learned values.
type ReplicaOptions struct {
	Address      string         `yaml:"address"`                            // IP address and port of its HTTP API, e.g. [::1]:8000
	Name         string         `yaml:"name,omitempty"`                     // name in logs, pages and one metric
	Tenant       string         `yaml:"tenant,omitempty"`                   // the only tenant that it serves; "" = shared
	Role         string         `yaml:"role,omitempty" default:"both"`      // prefill (it answers no requests), decode (it computes no prompts for others) or both
	KVConnector  string         `yaml:"kv_connector,omitempty"`             // the kv_connector of its --kv-transfer-config, e.g. NixlConnector, or none; "" = what its metrics show
	SharedStore  string         `yaml:"shared_store,omitempty"`             // name of a store of KV blocks that replicas share, or none; "" = as its connector or KV events show
	Models       []ModelOptions `yaml:"models,omitempty"`                   // models that it serves, instead of its /v1/models
	BlockSize    int            `yaml:"block_size,omitempty" unit:"tokens"` // tokens of a KV block; 0 = as it reports
	Events       []EventSource  `yaml:"events,omitempty"`                   // where it publishes KV events, if it does not say so itself (vLLM before 0.32)
	NoEvents     bool           `yaml:"no_events,omitempty"`                // it publishes no KV events on purpose
	Sidecar      bool           `yaml:"sidecar,omitempty"`                  // a sidecar reports its KV events to `index_service`
	HashSeed     *string        `yaml:"hash_seed,omitempty"`                // its PYTHONHASHSEED, to check its hashes with
	KVReportFull bool           `yaml:"kv_report_full,omitempty"`           // it runs with kv_cache_report_mode full
	Cache        CacheOptions   `yaml:"cache,omitempty"`                    // settings of its cache groups that KV events do not contain
}

// ModelOptions is one model id of a replica.
type ModelOptions struct {
	ID       string `yaml:"id"`                              // the name in requests
	Base     string `yaml:"base,omitempty"`                  // name of the base model; "" = `id` itself
	LoRA     bool   `yaml:"lora,omitempty"`                  // it is an adapter of `base`
	LoRAPath string `yaml:"lora_path,omitempty"`             // where the adapter was loaded from
	MaxLen   int    `yaml:"max_len,omitempty" unit:"tokens"` // longest context, if known
}

// DNSOptions is a name that stands for any number of replicas.
type DNSOptions struct {
	// Name is "host:port" for A or AAAA records, or, with an underscore in front, the full name of SRV records, e.g.
	// "_http._tcp.vllm.default.svc.cluster.local".
	Name string `yaml:"name"`
	// Replica are the settings of every replica found.
	Replica ReplicaOptions `yaml:"replica,omitempty"`
}

// HTTPOptions are the settings of requests to replicas. The zero value is plain HTTP.
type HTTPOptions struct {
	// TLS is how router and Envoys contact replicas. Envoys need `cert_file` and `key_file` on their machine; without
	// `server_name` they take any IP address in a certificate.
	TLS certs.ClientOptions `yaml:"tls,omitempty"`
	// TokenFile is the file with the replicas' API key (vLLM's --api-key), read every 10 s. It is the router's own: clients send
	// theirs.
	TokenFile string `yaml:"token_file,omitempty"`
}

const (
	scrapeTimeout = time.Second      // the longest wait for a metrics page
	learnEvery    = 30 * time.Second // models, adapters and event sources are requested again: an adapter loaded at run time is known by then
	maxBackoff    = 5 * time.Second  // the longest wait between two attempts at a replica that does not answer, and so how late its return is noticed
	maxPageBytes  = 8 << 20          // of a metrics page are read: a hundred times a real one
	maxReplicas   = 4096             // addresses beyond them are left out
	maxRanks      = 64               // of one replica; those beyond them are left out
)

// DefaultOptions watches at 1 Hz, which is enough together with the router's
// in-flight ledger, and drops a replica 2.9 s after its last answer: the promised
// 3 s, less the time of the last request and of a busy machine. A longer time
// tolerates longer pauses of a replica.
func DefaultOptions() Options {
	return Options{
		ScrapeInterval: time.Second,
		DeadAfter:      2900 * time.Millisecond,
	}
}

// withDefaults fills in zero values.
func (o Options) withDefaults() Options {
	d := DefaultOptions()
	o.ScrapeInterval = cmp.Or(o.ScrapeInterval, d.ScrapeInterval)
	o.DeadAfter = cmp.Or(o.DeadAfter, d.DeadAfter)
	o.maxReplicas = cmp.Or(o.maxReplicas, maxReplicas)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	return o
}

// Validate returns every problem, joined, each as "field: sentence".
func (o Options) Validate() error {
	var p problems.List
	full := o.withDefaults()
	p.Refuse(full.ScrapeInterval < 50*time.Millisecond, "scrape_interval", "%v is shorter than 50ms, which costs more than it tells", o.ScrapeInterval)
	p.Refuse(full.DeadAfter < 2*full.ScrapeInterval, "dead_after",
		"%v is less than two times scrape_interval (%v): one late answer would drop a replica", full.DeadAfter, full.ScrapeInterval)
	eventHosts(o.EventHosts).validate(&p)
	validateReplicas(&p, o.Replicas)
	for i, d := range o.DNS {
		d.validate(&p, fmt.Sprintf("dns[%d]", i))
	}
	p.Add("", o.HTTP.TLS.Validate("tls."))
	return p.Err()
}

func validateReplicas(p *problems.List, list []ReplicaOptions) {
	seen, publishers := map[string]int{}, map[EventSource]string{}
	for i, r := range list {
		at := fmt.Sprintf("replicas[%d]", i)
		addr, err := parseAddress(r.Address)
		p.Add(at+".address: ", err)
		if err == nil {
			first, twice := seen[addr]
			if p.Refuse(twice, at+".address", "%q is the same as replicas[%d].address", r.Address, first); !twice {
				seen[addr] = i
			}
		}
		r.validate(p, at)
		host, _, _ := net.SplitHostPort(addr)
		for k, e := range r.Events {
			of := EventSource{Endpoint: eventEndpoint(e.Endpoint, host), Topic: e.Topic}
			at := fmt.Sprintf("%s.events[%d]", at, k)
			first, twice := publishers[of]
			p.Refuse(twice && host != "" && e.Endpoint != "", at+".endpoint", "%q is that of %s, whose blocks would count for both", e.Endpoint, first)
			publishers[of] = cmp.Or(first, at)
		}
	}
}

// ValidateTemplate checks settings for replicas whose addresses and names come
// from elsewhere: every problem, joined, each as "field: sentence".
func (r ReplicaOptions) ValidateTemplate() error {
	var p problems.List
	r.validateTemplate(&p, "")
	return p.Err()
}

func (r ReplicaOptions) validateTemplate(p *problems.List, at string) {
	p.Refuse(r.Address != "", at+".address", "%q is given, but addresses are found here", r.Address)
	p.Refuse(r.Name != "", at+".name", "%q is given, but it would name every replica found", r.Name)
	r.validate(p, at)
}

// parseAddress returns the one spelling of an "ip:port".
func parseAddress(s string) (string, error) {
	if s == "" {
		return "", errors.New("is missing")
	}
	ap, err := netip.ParseAddrPort(s)
	if err == nil {
		switch {
		case ap.Port() == 0:
			return "", fmt.Errorf("%q has port 0", s)
		case ap.Addr().Zone() != "":
			return "", fmt.Errorf("%q has a zone, which Envoy cannot dial", s)
		case ap.Addr().IsUnspecified() || ap.Addr().IsMulticast():
			return "", fmt.Errorf("%q is not the address of one host", s)
		}
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String(), nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		if a.Is6() {
			return "", fmt.Errorf("%q has no port%s", s, listen.Brackets(s))
		}
		return "", fmt.Errorf("%q has no port", s)
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fmt.Errorf("%q is not of the form ip:port%s", s, listen.Brackets(s))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q has a port that is not a number from 1 to 65535", s)
	}
	if validHost(host) {
		return "", fmt.Errorf("%q is a name, not an IP address; list it under dns", s)
	}
	return "", fmt.Errorf("%q is not of the form ip:port", s)
}

// validHost reports whether s can be a DNS name (letters, digits, - _ .).
func validHost(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	return strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-_.") == "" &&
		strings.Trim(s, "0123456789.") != "" // all digits is a broken address
}

// hashAlgorithms are the values of vLLM's --prefix-caching-hash-algo.
var hashAlgorithms = []string{"sha256", "sha256_cbor", "xxhash", "xxhash_cbor"}

func (r ReplicaOptions) validate(p *problems.List, at string) {
	p.Refuse(r.BlockSize < 0 || r.BlockSize > maxBlockSize, at+".block_size", "%d is not from 1 to %d tokens", r.BlockSize, maxBlockSize)
	_, err := ParseRole(r.Role)
	p.Add(at+".role: ", err)
	p.Refuse(len(r.SharedStore) > maxNameLength, at+".shared_store", "%.20q… is longer than %d bytes", r.SharedStore, maxNameLength)
	p.Refuse(!validConnector(r.KVConnector), at+".kv_connector", "%.150q is not the name of a KV connector, such as NixlConnector", r.KVConnector)
	r.Cache.validate(p, at+".cache")
	ids := map[string]bool{}
	for i, m := range r.Models {
		at := fmt.Sprintf("%s.models[%d]", at, i)
		p.Refuse(m.ID == "", at+".id", "is missing")
		p.Refuse(m.ID != "" && ids[m.ID], at+".id", "%q is listed twice", m.ID)
		ids[m.ID] = true
		p.Refuse(m.LoRA && m.Base == "", at+".base", "is missing; an adapter needs the model it adapts")
		p.Refuse(m.LoRAPath != "" && !m.LoRA, at+".lora_path", "%q is given, but lora is not set", m.LoRAPath)
		p.Refuse(m.MaxLen < 0, at+".max_len", "%d is negative", m.MaxLen)
	}
	p.Refuse(r.Sidecar && len(r.Events) > 0, at+".events", "%d are given, but with sidecar set nothing subscribes to them", len(r.Events))
	p.Refuse(r.NoEvents && (r.Sidecar || len(r.Events) > 0), at+".no_events", "is set, but events or sidecar name a source of KV events")
	ranks := map[int]bool{}
	for i, e := range r.Events {
		at := fmt.Sprintf("%s.events[%d]", at, i)
		known := e.Rank >= 0 && e.Rank <= maxRank
		p.Refuse(!known, at+".rank", "%d is not from 0 to %d", e.Rank, maxRank)
		p.Refuse(known && ranks[e.Rank], at+".rank", "%d is listed twice", e.Rank)
		ranks[e.Rank] = true
		p.Add(at+".endpoint: ", checkEndpoint(e.Endpoint))
		if e.ReplayEndpoint != "" {
			err := checkEndpoint(e.ReplayEndpoint)
			p.Add(at+".replay_endpoint: ", err)
			p.Refuse(err == nil && e.ReplayEndpoint == e.Endpoint, at+".replay_endpoint", "%q is the endpoint too: events and replays have a port each", e.Endpoint)
		}
	}
}

// checkEndpoint accepts tcp://host:port (host may be a wildcard) and ipc://path.
func checkEndpoint(s string) error {
	if s == "" {
		return errors.New("is missing")
	}
	if rest, ok := strings.CutPrefix(s, "ipc://"); ok && rest != "" {
		return nil
	}
	if !strings.HasPrefix(s, "tcp://") {
		return fmt.Errorf("%q is not of the form tcp://host:port", s)
	}
	host, port := hostPort(s)
	if host == "" {
		return fmt.Errorf("%q has no port", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q has a port that is not a number from 1 to %d", s, math.MaxUint16)
	}
	return nil
}

// SRV reports whether the name is one of SRV records: no host's name has an underscore.
func (d DNSOptions) SRV() bool { return strings.HasPrefix(d.Name, "_") }

func (d DNSOptions) validate(p *problems.List, at string) {
	d.Replica.validateTemplate(p, at+".replica")
	host, port, err := net.SplitHostPort(d.Name)
	n, perr := strconv.ParseUint(port, 10, 16)
	p.Refuse(d.SRV() && !validHost(d.Name), at+".name", "%q is not the name of SRV records", d.Name)
	p.Refuse(!d.SRV() && (err != nil || perr != nil || n == 0 || !validHost(host)), at+".name", "%q is not of the form name:port", d.Name)
}

// eventEndpoint puts the replica's own host where a publisher wrote a wildcard
// ("tcp://*:5557": bound on every interface).
func eventEndpoint(endpoint, host string) string {
	switch wildcard, port := hostPort(endpoint); wildcard {
	case "*", "0.0.0.0", "::", "0:0:0:0:0:0:0:0":
		return "tcp://" + net.JoinHostPort(host, port)
	}
	return endpoint
}

// hostPort splits tcp://host:port, the host without brackets; vLLM also writes tcp://:::5557. Both are
// empty for another form.
func hostPort(endpoint string) (host, port string) {
	rest, ok := strings.CutPrefix(endpoint, "tcp://")
	i := strings.LastIndexByte(rest, ':')
	if !ok || i < 0 {
		return "", ""
	}
	return strings.Trim(rest[:i], "[]"), rest[i+1:]
}
