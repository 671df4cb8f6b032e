package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"warmroute/cmd/extproc/internal/tracing"
	"warmroute/envoy"
	"warmroute/filter"
	"warmroute/index"
	"warmroute/internal/certs"
	"warmroute/internal/config"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/kube"
	"warmroute/internal/modelfiles"
	"warmroute/internal/peers/link"
	"warmroute/internal/prefill"
	"warmroute/internal/problems"
	"warmroute/internal/telemetry"
	"warmroute/internal/tokens"
	"warmroute/internal/tracefile"
	"warmroute/internal/xds"
)

// Config is the router's configuration file. Every field has a default; the
// smallest useful file names the replicas.
type Config struct {
	Listen string        `yaml:"listen" applies:"restart"` // gRPC address for Envoy, host:port
	TLS    certs.Options `yaml:"tls" applies:"restart"`    // TLS of `listen`
	// LameDuck is how long `listen` stays open after SIGTERM while health checks already fail.
	LameDuck time.Duration `yaml:"lame_duck" applies:"restart"`
	// Insecure are the sections, of admin, index_service, peers and xds, whose ports may be beyond the loopback without proof:
	// every client there can change the policy and read decisions, report blocks, change loads, or read addresses.
	Insecure []string `yaml:"insecure,omitempty" applies:"reload"`

	Health HealthConfig         `yaml:"health" applies:"restart"` // HTTP for probes and Prometheus, on a port of its own
	Admin  AdminConfig          `yaml:"admin" applies:"restart"`  // HTTP for operators: debug pages, dashboard, policy, health and metrics
	Log    telemetry.LogOptions `yaml:"log" applies:"reload"`     // Log of the router, on standard error

	Fleet      fleet.Options `yaml:"fleet" applies:"reload"`                 // the replicas, and how they are watched
	Kubernetes kube.Options  `yaml:"kubernetes,omitempty" applies:"restart"` // replicas from a Gateway API InferencePool, in addition to those of `fleet`

	Index        IndexConfig        `yaml:"index" applies:"restart"`         // limits of the index of cached blocks
	IndexService IndexServiceConfig `yaml:"index_service" applies:"restart"` // the index over gRPC, for sidecars and for routers that start
	WarmUp       WarmUpConfig       `yaml:"warm_up" applies:"restart"`       // where a router that starts takes the index from

	Peers  link.Config   `yaml:"peers" applies:"restart"` // other routers of the fleet, which tell each other their loads and prompts; off without `listen` and `url`
	Filter FilterConfig  `yaml:"filter" applies:"reload"` // how requests are read and answered
	Tokens TokensConfig  `yaml:"tokens" applies:"reload"` // how prompts become token ids
	Policy policy.Config `yaml:"policy" applies:"reload"` // how replicas are ranked, of all models
	Envoy  envoy.Options `yaml:"envoy" applies:"reload"`  // settings of Envoy, by xDS and `extproc envoy-config`
	XDS    xds.Options   `yaml:"xds" applies:"restart"`   // where Envoy finds it

	PrefillDecode PrefillDecodeConfig `yaml:"prefill_decode" applies:"reload"` // requests whose prompt one replica computes and another one answers (docs/prefill-decode.md)

	Sessions SessionsConfig `yaml:"sessions" applies:"reload"` // cold prompts that wait, so that running sessions keep their caches

	Tracing tracing.Options `yaml:"tracing" applies:"restart"` // OpenTelemetry spans of decisions, for requests whose own trace is sampled

	complete bool // replicas must come from somewhere: this binary decides from where
	here     bool // the router will run on this machine, with its files and variables
}

// HealthConfig is the server of health and metrics.
type HealthConfig struct {
	Listen string `yaml:"listen"` // address of /healthz, /readyz and /metrics; "" = on `admin.listen` alone
}

// AdminConfig is the admin server.
type AdminConfig struct {
	Listen    string   `yaml:"listen"`               // address, host:port; beyond the loopback it needs a token
	TokenFile string   `yaml:"token_file,omitempty"` // file with the bearer token of every request but those for health and metrics, read every 10 s
	Hosts     []string `yaml:"hosts,omitempty"`      // further names of this port, e.g. of a proxy
	Pprof     bool     `yaml:"pprof"`                // serve Go's profiles under /debug/pprof/
}

// IndexConfig bounds the index; see index.Options.
type IndexConfig struct {
	MaxScopes  int           `yaml:"max_scopes" unit:"scopes"` // most combinations of tenant, model and hash scheme
	MaxBlocks  int           `yaml:"max_blocks" unit:"blocks"` // most distinct blocks, half of it in one scope (1.4 GiB of memory), as many again for each replica with several cache groups
	ReplicaTTL time.Duration `yaml:"replica_ttl"`              // how long a sidecar may send nothing
	StorageTTL time.Duration `yaml:"storage_ttl"`              // how long a block in storage counts since its last KV event, where none announces removals
}

func (c IndexConfig) options() index.Options {
	return index.Options{
		MaxScopes: c.MaxScopes, MaxScopeBlocks: max(1, c.MaxBlocks/2), MaxBlocks: c.MaxBlocks,
		SweepEvery: min(index.DefaultSweepEvery, c.ReplicaTTL/5), ReplicaTTL: c.ReplicaTTL, StorageTTL: c.StorageTTL,
	}
}

// FilterConfig bounds the reading and deciding of requests.
type FilterConfig struct {
	TokenBudget time.Duration `yaml:"token_budget"`          // the longest wait for token ids; then there is no hint, or one by the text
	MaxBody     int           `yaml:"max_body" unit:"bytes"` // longest body that is read; others pass without a hint
	BodyWait    time.Duration `yaml:"body_wait"`             // longest wait for the end of a body in FULL_DUPLEX_STREAMED mode; in every mode, how long it counts for `max_streams`
	// PathPrefixes are paths that may stand before the routes of the API, like "/openai".
	PathPrefixes   []string `yaml:"path_prefixes,omitempty"`
	TenantHeader   string   `yaml:"tenant_header"`               // header with the tenant, which a trusted gateway always overwrites
	PriorityHeader string   `yaml:"priority_header"`             // header with a whole number, which a trusted gateway always overwrites: above 0, requests are never refused for load
	ReasonHeader   bool     `yaml:"reason_header"`               // send clients a coarse reason in x-warmroute-reason
	Picker         bool     `yaml:"picker"`                      // endpoint-picker mode: 503 when no replica is ready, 429 when all are saturated
	AlwaysPick     bool     `yaml:"always_pick"`                 // name exactly one ready replica: for clusters without a balancer (ORIGINAL_DST)
	Mode           string   `yaml:"mode"`                        // route, or shadow: Envoy balances, and decisions are only counted (docs/trial.md)
	Share          float64  `yaml:"share" unit:"percent"`        // requests that get their hints, above 0, drawn by a hash
	ShareBy        string   `yaml:"share_by"`                    // header by whose value the share is drawn; "" = the request's id
	OptOutHeader   string   `yaml:"opt_out_header"`              // header by which clients pass without a hint
	MaxStreams     int      `yaml:"max_streams" unit:"requests"` // most requests with a prompt at a time; others pass without a hint
	// ReadyNeedsReplica is whether readiness fails while no replica is ready, for gateways that then use
	// another router.
	ReadyNeedsReplica bool `yaml:"ready_needs_replica"`

	TraceFile      string `yaml:"trace_file" applies:"restart"`                    // file with a line for each request, without text and token ids, for `lab replay`
	TraceFileBytes int    `yaml:"trace_file_bytes" unit:"bytes" applies:"restart"` // most of one trace file; four are kept
}

// mostNamed is how many replicas a hint names, best first: Envoy's retries go to the next.
const mostNamed = 3

// named returns the number of replicas that a request names: a cluster without a balancer
// takes the header for one address, and a list for none.
func (c FilterConfig) named() int {
	if c.AlwaysPick {
		return 1
	}
	return mostNamed
}

func defaultConfig() Config {
	ix := index.Options{}.Effective()
	return Config{
		Listen: "127.0.0.1:9002", LameDuck: 5 * time.Second,
		Admin: AdminConfig{Listen: "127.0.0.1:9090"},
		Log:   telemetry.LogOptions{Level: "info", Format: "text"},
		Fleet: fleet.DefaultOptions(),
		Index: IndexConfig{
			MaxScopes: ix.MaxScopes, MaxBlocks: ix.MaxBlocks, ReplicaTTL: ix.ReplicaTTL, StorageTTL: ix.StorageTTL,
		},
		IndexService: IndexServiceConfig{Listen: "127.0.0.1:9003"},
		Peers:        link.DefaultConfig(),
		Filter: FilterConfig{
			TokenBudget: 50 * time.Millisecond, MaxBody: 64 << 20, BodyWait: 5 * time.Second, MaxStreams: 8192,
			Mode: modeRoute, Share: 100, OptOutHeader: envoy.HeaderOptOut,
			TraceFileBytes: tracefile.DefaultBytes,
		},
		Tokens: TokensConfig{
			Download: true, KeepTexts: true,
			DownloadMiB: modelfiles.DefaultBytes >> 20, MaxLoadedMiB: tokens.DefaultModelBytes >> 20,
		},
		Envoy: defaultEnvoy(), PrefillDecode: defaultPrefillDecode(), Sessions: defaultSessions(),
		XDS: xds.Options{Listen: "127.0.0.1:9004"},
	}
}

// escapedSlash is what Envoy forwards as a slash.
var escapedSlash = regexp.MustCompile(`(?i)%(2f|5c)`)

// Validate returns every problem of the sections that no other package owns.
func (c Config) Validate() error {
	var p problems.List
	for _, at := range c.ports() {
		p.Add(at.field+": ", at.wrong())
	}
	for _, of := range []struct { // their packages would use the defaults
		name string
		zero bool
	}{
		{"envoy.idle_timeout", c.Envoy.IdleTimeout == 0}, {"envoy.body_limit", c.Envoy.BodyLimit == 0},
		{"fleet.scrape_interval", c.Fleet.ScrapeInterval == 0}, {"fleet.dead_after", c.Fleet.DeadAfter == 0},
		{"index.max_scopes", c.Index.MaxScopes == 0}, {"index.max_blocks", c.Index.MaxBlocks == 0},
		{"index.replica_ttl", c.Index.ReplicaTTL == 0}, {"index.storage_ttl", c.Index.StorageTTL == 0},
	} {
		p.Refuse(of.zero, of.name, "is 0; leave it out for the default")
	}
	for i, host := range c.Admin.Hosts {
		_, err := netip.ParseAddr(host)
		p.Refuse(err != nil && (host == "" || strings.ContainsAny(host, ":/ ")), fmt.Sprintf("admin.hosts[%d]", i), "%q is not a host's name; scheme and port are left out", host)
	}
	p.Refuse(c.LameDuck < 0, "lame_duck", "%v is negative", c.LameDuck)
	p.Add("filter.", c.Filter.validate())
	p.Add("prefill_decode.", c.PrefillDecode.validate())
	p.Add("sessions.", c.Sessions.validate())
	if c.complete {
		p.Add("", errors.Join(c.sources(), c.Kubernetes.Supported()))
	}
	if c.here {
		p.Add("", errors.Join(c.required(), c.expected()))
	}
	p.Add("", errors.Join(c.dependencies(), c.doors()))
	return p.Err()
}

// validate returns every problem of the filter's settings.
func (c FilterConfig) validate() error {
	var p problems.List
	for i, prefix := range c.PathPrefixes {
		p.Add(fmt.Sprintf("path_prefixes[%d]: ", i), validatePrefix(prefix))
	}
	p.Refuse(c.MaxBody <= 0, "max_body", "%d is not positive", c.MaxBody)
	p.Refuse(c.MaxStreams <= 0, "max_streams", "%d is not positive", c.MaxStreams)
	p.Refuse(c.TraceFileBytes < tracefile.MinBytes, "trace_file_bytes", "%d is less than %d", c.TraceFileBytes, tracefile.MinBytes)
	p.Add("tenant_header: ", validateTrustedHeader(c.TenantHeader))
	p.Add("priority_header: ", validateTrustedHeader(c.PriorityHeader))
	p.Refuse(c.PriorityHeader != "" && c.PriorityHeader == c.TenantHeader, "priority_header", "%q is the tenant header", c.PriorityHeader)
	p.Add("", c.validateTrial())
	p.Refuse(c.TokenBudget <= 0, "token_budget", "%v is not positive", c.TokenBudget)
	p.Refuse(c.BodyWait <= 0, "body_wait", "%v is not positive", c.BodyWait)
	return p.Err()
}

// validatePrefix refuses a path before the routes of the API that no request has.
func validatePrefix(prefix string) error {
	switch {
	case !strings.HasPrefix(prefix, "/") || strings.HasSuffix(prefix, "/"):
		return fmt.Errorf("%q does not begin, or ends, with a slash", prefix)
	case path.Clean(prefix) != prefix || strings.ContainsAny(prefix, "?#") || escapedSlash.MatchString(prefix):
		return fmt.Errorf("%q is not a path as Envoy forwards it", prefix)
	case path.Base(prefix) == "v1":
		return fmt.Errorf("%q ends with /v1, with which the paths behind it begin: leave that out", prefix)
	}
	return nil
}

// validateTrustedHeader refuses names that can never match (Envoy writes names in lower
// case), or whose value another component sets.
func validateTrustedHeader(name string) error {
	switch {
	case name == "":
		return nil
	case name != strings.ToLower(name):
		return fmt.Errorf("%q is not in lower case, as Envoy writes names", name)
	case strings.HasPrefix(name, ":") || slices.Contains(envoy.Owned[:], name) || slices.Contains(envoy.OwnedLegs[:], name):
		return fmt.Errorf("%q is set by Envoy or by warmroute, not by a gateway that is trusted", name)
	case slices.Contains([]string{"connection", "content-encoding", "content-length", "content-type", "host", "te", "traceparent", "transfer-encoding", "x-request-id"}, name):
		return fmt.Errorf("%q describes a request, whoever sends it", name)
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
		return fmt.Errorf("%q is not a header's name", name)
	}
	return nil
}

var errNoConfig = errors.New("no configuration: name one, as in `extproc serve FILE`; `fleet: {replicas: [{address: 10.0.0.1:8000}]}` is enough")

func loadConfig(path string) (Config, error) {
	if path == "" {
		return Config{}, errNoConfig
	}
	return config.Load(path, defaultConfig)
}

// completeConfig is defaultConfig for a file that will be served, on this machine or
// elsewhere.
func completeConfig(here bool) Config {
	c := defaultConfig()
	c.complete, c.here = true, here
	return c
}

func (c Config) routerOptions() filter.RouterOptions {
	return filter.RouterOptions{TokenBudget: c.Filter.TokenBudget, DropTexts: !c.Tokens.KeepTexts}
}

func (c Config) serverOptions(legs *prefill.Sender, log *slog.Logger) filter.ServerOptions {
	return filter.ServerOptions{
		PathPrefixes: c.Filter.PathPrefixes, TenantHeader: c.Filter.TenantHeader, PriorityHeader: c.Filter.PriorityHeader, MaxBody: c.Filter.MaxBody, BodyWait: c.Filter.BodyWait,
		ReasonHeader: c.Filter.ReasonHeader, Picker: c.Filter.Picker,
		AlwaysPick: c.Filter.AlwaysPick, Trial: c.Filter.trial(), MaxStreams: c.Filter.MaxStreams, MaxBodies: c.Filter.bodies(debug.SetMemoryLimit(-1)), Log: log,
		Split: filter.SplitOptions{Transport: c.PrefillDecode.Mode, MaxWait: c.PrefillDecode.MaxWait, Legs: legs},
		Hold:  c.Sessions.holds(),
	}
}

// decisionMargin is what a decision may take besides the wait for token ids, with the transfer of
// the body.
const decisionMargin = 150 * time.Millisecond

// envoyOptions fills in the options that follow from the rest of the configuration.
func (c Config) envoyOptions() envoy.Options {
	o := c.Envoy
	if len(o.ExtProc) == 0 {
		o.ExtProc, o.TLS.Enabled = []string{c.Listen}, c.TLS.Enabled()
	}
	o.TLS.Enabled = o.TLS.Enabled || c.TLS.Enabled()
	if o.MessageTimeout == 0 {
		o.MessageTimeout = min(max(envoy.Options{}.WithDefaults().MessageTimeout, c.Filter.TokenBudget+decisionMargin), envoy.MostMessageTimeout)
	}
	if len(o.XDS) == 0 && c.XDS.Listen != "" {
		o.XDS = []string{c.XDS.Listen}
	}
	o.XDSTLS = c.XDS.TLS.Enabled()
	o.ReasonHeader, o.Split, o.PathPrefixes = c.Filter.ReasonHeader, c.PrefillDecode.envoy(), c.Filter.PathPrefixes
	o.UsageShare, o.Hold = new(c.usageShare()), c.Sessions.holds().MaxWait
	if len(o.Replicas) == 0 {
		for _, r := range c.Fleet.Replicas {
			o.Replicas = append(o.Replicas, r.Address)
		}
		for _, d := range c.Fleet.DNS {
			if !d.SRV() {
				o.Replicas = append(o.Replicas, d.Name)
			}
		}
	}
	return o
}

// xdsSettings returns the part of the configuration that Envoys receive.
func (c Config) xdsSettings() (xds.Settings, error) {
	o := c.envoyOptions()
	if c.XDS.Enabled() {
		var err error
		if o, err = c.withReplicaTLS(o); err != nil {
			return xds.Settings{}, err
		}
	}
	o.Replicas = nil                       // the fleet has the current list
	locked := c.Fleet.HTTP.TokenFile != "" // replicas require a key before they list models
	return xds.Settings{At: c.XDS, Envoy: o, Listing: !locked}, nil
}

// usageShare returns the percentage of requests whose answers' usage is read: a trial
// compares by it.
func (c Config) usageShare() int {
	switch {
	case c.Envoy.UsageShare != nil:
		return *c.Envoy.UsageShare
	case c.Filter.Mode == modeShadow || c.Filter.Share < 100:
		return envoy.TrialUsageShare
	}
	return 0
}

// defaultEnvoy leaves out the options that follow from the rest of the configuration.
func defaultEnvoy() envoy.Options {
	o := envoy.Options{}.WithDefaults()
	o.ExtProc, o.MessageTimeout = nil, 0
	return o
}
