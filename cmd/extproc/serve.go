package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"warmroute/cmd/extproc/internal/dashboard"
	"warmroute/index"
	"warmroute/internal/admin"
	"warmroute/internal/config"
	"warmroute/internal/telemetry"
	"warmroute/internal/xds"
)

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

// router has the parts of `extproc serve`.
type router struct {
	log       *slog.Logger
	dial      *telemetry.LogDial // of log
	metrics   prometheus.Gatherer
	reloads   *reloads
	replicas  *replicas
	ids       *ids
	xds       *xds.Publisher
	decisions *decisions
	outcomes  *outcomes
	envoys    *envoys
	history   *dashboard.History
}

// newRouter makes everything and starts nothing.
func newRouter(c Config, log *slog.Logger, reg prometheus.Registerer) (_ *router, err error) {
	r := &router{log: log, dial: new(telemetry.LogDial), reloads: newReloads(c, reg)}
	if err := c.required(); err != nil {
		return nil, err
	}
	if r.replicas, err = newReplicas(c, log, reg, func(h index.Holder, follows bool) { r.decisions.decider.Following(h, follows) }, r.forget); err != nil {
		return nil, err
	}
	if r.ids, err = newIDs(c, r.replicas, log, reg); err != nil {
		return nil, err
	}
	published, err := c.xdsSettings()
	if err != nil {
		return nil, err
	}
	r.xds = xds.New(published, r.replicas.fleet, reg, log)
	if r.decisions, err = newDecisions(c, r.xds, r.replicas, log, reg); err != nil {
		return nil, err
	}
	r.outcomes = newOutcomes(c, r.ids, r.decisions, log, reg)
	if r.envoys, err = newEnvoys(c, r.outcomes, log, reg); err != nil {
		return nil, err
	}
	reg.MustRegister(r.refusedTLS())
	r.history = dashboard.NewHistory(time.Now, func() dashboard.Reading { return r.reading(r.replicas.fleet.Snapshot()) })
	return r, nil
}

// forget drops what is known of a replica that has left.
func (r *router) forget(replica string) {
	r.decisions.decider.Forget(replica)
	r.outcomes.forget(replica)
}

// run serves until ctx ends: first health ends, then, when Envoys have noticed, requests
// in flight, then everything that feeds them.
func (r *router) run(ctx context.Context, file *config.File[Config]) error {
	c := r.reloads.inForce()
	var gate admin.Gate
	if err := errors.Join(r.envoys.listen(c.Listen), r.replicas.service.open(), r.xds.Listen()); err != nil {
		return err // a wrong address is an error at the start
	}
	pages, err := r.pages(c, &gate)
	if err != nil {
		return err
	}
	if err := r.decisions.openPeers(); err != nil {
		return err
	}
	back, stop := context.WithCancel(context.WithoutCancel(ctx)) // requests outlive ctx, and so does everything they need
	defer stop()
	supply := make(chan error, 1)
	go func() {
		supply <- together(back, r.replicas.Run, r.ids.Run, r.decisions.Run, r.outcomes.Run, r.envoys.Run, r.xds.Run, r.renewReplicaTLS, r.sample, followMemory, pages.run,
			func(ctx context.Context) error { return trim(ctx, gate.Ready, r.decisions.ring.Decisions) },
			func(ctx context.Context) error { return file.Watch(ctx, r.apply, r.refuse) })
	}()
	warnOfDoors(c, r.log)
	gate.Open(r.replicas.pool.Ready, r.replicas.ready, r.replicaReady, r.ids.ready, r.replicas.service.ready)
	r.log.Info("serving", "listen", r.envoys.door.Addr().String(), "health", pages[len(pages)-1].Addr(), "admin", pages[0].Addr(), "build", telemetry.ReadBuild().String())
	err = r.envoys.serve(ctx, &gate, c.LameDuck)
	stop()
	err = errors.Join(err, <-supply)
	r.log.Info("stopped")
	return err
}

// sample takes samples for the dashboard until ctx ends.
func (r *router) sample(ctx context.Context) error {
	r.history.Sample()
	return every(ctx, dashboard.Every, func(time.Time) { r.history.Sample() })
}

// every calls f at intervals until ctx ends.
func every(ctx context.Context, interval time.Duration, f func(now time.Time)) error {
	tick := time.Tick(interval)
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick:
			f(now)
		}
	}
}

// together runs parts until all have ended.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	var g errgroup.Group
	for _, part := range parts {
		g.Go(func() error { return part(ctx) })
	}
	return g.Wait()
}
