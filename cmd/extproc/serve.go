package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"warmroute/cmd/extproc/internal/comparison"
	"warmroute/cmd/extproc/internal/dashboard"
	"warmroute/cmd/extproc/internal/outcome"
	"warmroute/cmd/extproc/internal/shortfall"
	"warmroute/cmd/extproc/internal/tracing"
	"warmroute/filter"
	"warmroute/index"
	"warmroute/internal/admin"
	"warmroute/internal/certs"
	"warmroute/internal/config"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/feed"
	"warmroute/internal/fleet"
	"warmroute/internal/indexrpc"
	"warmroute/internal/intake"
	"warmroute/internal/kube"
	"warmroute/internal/listen"
	"warmroute/internal/load"
	"warmroute/internal/modelfiles"
	"warmroute/internal/peers"
	"warmroute/internal/prefill"
	"warmroute/internal/telemetry"
	"warmroute/internal/tokens"
	"warmroute/internal/tracefile"
	"warmroute/internal/xds"
	"warmroute/render/work"
)

// drainTime bounds how long requests in flight may go on after SIGTERM: a stream
// lives as long as its request, and generations are long. Cutting a stream only
// costs the release of its charge.
const drainTime = 10 * time.Second

// renderConns bounds the idle connections per replica for requests of token ids:
// a busy moment has as many under way.
const renderConns = 16

func serveCommand(ctx context.Context, args []string, std stdio) error {
	path, err := configFlags(std, "serve", args, func(*flag.FlagSet) {})
	if err != nil {
		return err
	}
	if path == "" {
		return errNoConfig
	}
	file := &config.File[Config]{Path: path, Defaults: defaultConfig}
	c, err := file.Load()
	if err != nil {
		return err
	}
	telemetry.SurviveClosedPipe()
	out := telemetry.NewLogWriter(std.Err)
	defer out.Close(time.Second)
	var dial telemetry.LogDial
	if err := dial.Set(c.Log); err != nil {
		return err
	}
	var limit telemetry.LogLimiter
	log := dial.Limited(out, &limit)
	tuneMemory(log)
	spareProcessor()
	reg := telemetry.NewRegistry("extproc", telemetry.ReadBuild(), out, &limit)
	r, err := newRouter(c, log, reg)
	if err != nil {
		return file.Locate(err)
	}
	r.metrics, r.dial = reg, &dial
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	file.Now = hangup
	return r.run(ctx, file)
}

// router has all parts of `extproc serve`.
type router struct {
	c        Config
	log      *slog.Logger
	dial     *telemetry.LogDial // of log
	reloads  *reloads
	metrics  prometheus.Gatherer
	index    *index.Index
	feed     *feed.Feed
	fleet    *fleet.Fleet
	pool     *kube.Status
	remote   *tokens.Remote
	answers  intake.Budget // of remote and legs
	local    *tokens.Local
	lanes    tokens.Lanes
	turns    *work.Turns // of long bodies
	loading  *loading
	download atomic.Bool // tokens.download
	library  *tokens.Library
	hub      *modelfiles.Hub // nil: this machine has no Hugging Face cache
	// discovery finds the files of models that are not configured.
	discovery *tokens.Discovery
	ring      *decision.Ring
	ledger    *load.Ledger
	book      *policy.Book
	decider   *decision.Decider
	filter    *filter.Router
	watch     *shortfall.Watch
	server    *filter.Server
	legs      *prefill.Sender
	legCounts *prefill.Metrics
	// predicted returns the number of tokens that were predicted to be cached on
	// a replica.
	predicted   func(replica string) int64
	outcomes    *outcome.Server
	usage       usageShare
	differences *outcome.Differences
	compared    *comparison.Comparison
	service     indexService
	certs       *certs.Source     // nil without TLS
	tracer      *tracing.Tracer   // nil when off
	requests    *tracefile.Writer // nil without a trace file
	xds         *xds.Publisher
	counted     *filter.Metrics
	history     *dashboard.History
	sharing     sharing
}

// newRouter makes everything and starts nothing.
func newRouter(c Config, log *slog.Logger, reg prometheus.Registerer) (*router, error) {
	r := &router{c: c, log: log, dial: new(telemetry.LogDial), reloads: newReloads(c, reg), ring: decision.NewRing(c.Filter.Decisions), ledger: load.NewLedger(nil), turns: work.NewTurns(forLongWork())}
	err := c.required()
	if err != nil {
		return nil, err
	}
	if r.index, err = index.New(c.Index.options()); err != nil {
		return nil, err
	}
	r.service.Server = indexrpc.New(r.index, indexrpc.Options{
		TTL: c.Index.ReplicaTTL, Cursors: func() []index.Cursor { return r.feed.Cursors() },
	})
	reg.MustRegister(r.service.Collectors()...)
	metrics := filter.NewMetrics(reg)
	r.counted = metrics
	r.newOutcomes(reg, metrics)
	r.newFeed(reg, metrics)
	if err := r.newFleet(reg); err != nil {
		return nil, err
	}
	r.ledger.Model = func(replica string) string { return r.fleet.Snapshot().Base(replica) }
	source, err := r.newTokens(reg, log)
	if err != nil {
		return nil, err
	}
	if r.book, err = policy.NewBook(c.Policy); err != nil {
		return nil, err
	}
	published, err := c.xdsSettings()
	if err != nil {
		return nil, err
	}
	r.xds = xds.New(published, r.fleet, reg, log)
	decide := decision.Options{Ranked: c.Filter.named(), ReadsSalt: tokens.MessagesReadSalt}
	if c.Peers.Enabled() {
		r.sharing.outbox = peers.NewOutbox()
		decide.Peers, decide.Seed = r.sharing.outbox, c.Peers.Seed()
	}
	r.decider = decision.New(r.xds, r.index, r.ledger, r.book, decide)
	reg.MustRegister(append(r.decider.Collectors(), r.ledger, &r.sharing.collector)...)
	routing := filter.RouterOptions{TokenBudget: c.Filter.TokenBudget, DropTexts: !c.Tokens.KeepTexts, Turns: r.turns, Log: log}
	if c.Tracing.Enabled() {
		if r.tracer, err = tracing.New(c.Tracing, telemetry.ReadBuild().Version, reg, log); err != nil {
			return nil, err
		}
		routing.Tracer = r.tracer
	}
	if r.requests, err = r.newTraceFile(reg); err != nil {
		return nil, err
	}
	routing.Requests = r.requests
	r.usage.Set(c.usageShare())
	routing.Usage, routing.Prefilled = r.wantsUsage, r.learnPrefill
	r.filter = filter.NewRouter(r.decider, source, r.ring, metrics, routing)
	if c.TLS.Enabled() {
		if r.certs, err = certs.New(c.TLS, log); err != nil {
			return nil, fmt.Errorf("tls.%w", err)
		}
	}
	if err := r.newLegs(reg); err != nil {
		return nil, err
	}
	r.server = filter.NewServer(r.filter, r.filterOptions(c))
	r.history = dashboard.NewHistory(time.Now, r.reading)
	return r, nil
}

// newOutcomes makes the readers of the ends of requests.
func (r *router) newOutcomes(reg prometheus.Registerer, metrics *filter.Metrics) {
	r.compared = comparison.New(reg, r.baseOf, r.usage.draws, time.Now)
	r.predicted, r.outcomes = metrics.Predicted, outcome.New(reg, r.baseOf, metrics.ServedElsewhere, r.learn, r.compared.Add)
	r.differences = outcome.NewDifferences(reg)
	r.watch = shortfall.New(shortfall.Options{})
	reg.MustRegister(r.watch)
}

// newFeed makes the reader of KV events.
func (r *router) newFeed(reg prometheus.Registerer, metrics *filter.Metrics) {
	r.feed = feed.New(r.index, feed.Options{
		Log:     r.log,
		Applied: r.ledger.Applied,
		AdapterPath: func(ctx context.Context, replica, name string, ask bool) string {
			return r.fleet.AdapterPath(ctx, replica, name, ask)
		},
		Following: func(h index.Holder, following bool) { r.decider.Following(h, following) },
		OnLeave: func(replica string) {
			r.decider.Forget(replica)
			metrics.Forget(replica)
			r.differences.Forget(replica)
		},
	})
	reg.MustRegister(r.feed, r.sources())
}

// sources are the states of the replicas' KV events.
func (r *router) sources() feed.Sources {
	return feed.Sources{Feed: r.feed, Snapshot: func() *fleet.Snapshot { return r.fleet.Snapshot() }}
}

// newFleet makes the fleet with all sources of replicas.
func (r *router) newFleet(reg prometheus.Registerer) (err error) {
	o := r.c.Fleet
	o.Registerer, o.Logger, o.Served = reg, r.log, r.c.XDS.Served()
	r.pool = kube.NewStatus()
	reg.MustRegister(r.pool)
	if r.c.Kubernetes.Enabled() {
		source, err := kube.New(r.c.Kubernetes, r.pool, r.log)
		if err != nil {
			return err
		}
		o.Sources = append(o.Sources, source)
	}
	r.fleet, err = fleet.New(o, fleet.Hooks{Joined: r.feed.Join, Left: r.feed.Leave, Requests: r.ledger.Requests})
	return err
}

// run serves until ctx ends: first health ends, then, when Envoys have noticed, requests
// in flight, then everything that feeds them.
func (r *router) run(ctx context.Context, file *config.File[Config]) error {
	listener, err := listen.TCP(r.c.Listen, maxEnvoys)
	if err != nil {
		return fmt.Errorf("listen for Envoy: %w", err)
	}
	var gate admin.Gate
	g, door := grpc.NewServer(grpcOptions(r.certs)...), &occupied{Listener: listener}
	asked, drained := context.WithCancel(context.WithoutCancel(ctx)) // streams that never end by themselves
	defer drained()
	extprocv3.RegisterExternalProcessorServer(g, r.server)
	admin.RegisterHealth(asked, g, &gate)
	r.outcomes.Register(asked, g)
	pages, err := r.pages(&gate, door)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if err := r.open(); err != nil {
		return errors.Join(err, listener.Close(), pages.close())
	}
	back, stop := context.WithCancel(context.WithoutCancel(ctx)) // requests outlive ctx, and so does everything they need
	defer stop()
	var supply errgroup.Group
	for _, part := range append(r.parts(gate.Ready), pages.run, func(ctx context.Context) error { return file.Watch(ctx, r.apply, r.refuse) }) {
		supply.Go(func() error { return part(back) })
	}

	front, ctx := errgroup.WithContext(ctx)
	front.Go(func() error { return g.Serve(door) })
	front.Go(func() error {
		<-ctx.Done()
		gate.Shut("going down")
		if r.c.LameDuck > 0 && door.open.Load() > 0 {
			r.log.Info("going down: health checks fail, and Envoys have time to notice; a second signal ends at once", "lame_duck", r.c.LameDuck)
			lameDuck(r.c.LameDuck, func() bool { return door.open.Load() > 0 })
		}
		drained()
		drain(g)
		return nil
	})
	r.warnOfDoors(r.c)
	gate.Open(r.pool.Ready, r.ready, r.replicaReady, r.loading.ready, r.service.ready)
	r.log.Info("serving", "listen", listener.Addr().String(), "health", pages.health.Addr(), "admin", pages.admin.Addr(), "build", telemetry.ReadBuild().String())
	err = front.Wait()
	stop()
	err = errors.Join(err, supply.Wait())
	r.remote.Close()
	r.log.Info("stopped")
	return err
}

// open takes the other addresses, so that a wrong one is an error at
// the start.
func (r *router) open() error {
	if err := r.service.listen(r.c.IndexService, r.log); err != nil {
		return err
	}
	if err := r.openPeers(); err != nil {
		return err
	}
	return r.xds.Listen()
}

// parts returns the background tasks, each of which runs until its context ends.
func (r *router) parts(ready func() error) []func(context.Context) error {
	all := []func(context.Context) error{
		func(ctx context.Context) error {
			r.warmUp(ctx) // before the first replica joins
			return r.fleet.Run(ctx)
		},
		followMemory, r.requests.Run, r.feed.Run, r.index.Run, r.load, r.compare, r.history.Run, r.xds.Run, r.renewReplicaTLS,
		func(ctx context.Context) error { return r.service.run(ctx, r.log) },
		func(ctx context.Context) error { return trim(ctx, ready, r.ring.Decisions) },
		func(ctx context.Context) error { return ended(ctx, r.local.Run(ctx)) },
		func(ctx context.Context) error { return ended(ctx, r.discovery.Run(ctx)) },
	}
	if r.sharing.link != nil {
		all = append(all, r.sharing.link.Run)
	}
	if r.tracer != nil {
		all = append(all, r.tracer.Run)
	}
	if r.certs != nil {
		all = append(all, r.certs.Run)
	}
	return all
}

// ended returns err, or nil if err only reports the end of ctx.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// drain ends g gracefully, and by force after drainTime.
func drain(g *grpc.Server) {
	forced := time.AfterFunc(drainTime, g.Stop)
	defer forced.Stop()
	g.GracefulStop()
}
