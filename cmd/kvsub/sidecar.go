package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"warmroute/index"
	"warmroute/index/indexpb"
	"warmroute/internal/admin"
	"warmroute/internal/indexrpc"
	"warmroute/internal/kvevents"
	"warmroute/internal/reporter"
	"warmroute/internal/telemetry"
)

// connecting waits a second after the first failure, about the restart of an index on
// the same host or next to it, and never longer than five.
var connecting = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
	MinConnectTimeout: 2 * time.Second,
}

// sidecar reports the publisher's events to the index until ctx ends, then the
// rest, for a bounded time. It logs failures of either side and continues.
func sidecar(ctx context.Context, o options, stderr io.Writer) error {
	limit := new(telemetry.LogLimiter)
	log := limit.Logger(slog.NewTextHandler(stderr, nil))
	conn, err := indexrpc.Dial(o.index, o.access, grpc.WithConnectParams(connecting))
	if err != nil {
		return fmt.Errorf("-index %q: %w", o.index, err)
	}
	defer conn.Close()
	client := indexpb.NewCacheIndexClient(conn)
	holder := index.Holder{Replica: o.replica, Rank: o.rank}
	var s *kvevents.Subscriber
	reporting := o.reporting(log)
	reporting.Up = func() bool { return s.Status().Connected }
	reports := reporter.New(client, holder, reporting)
	s, err = kvevents.New(o.subscription(log), reports)
	if err != nil {
		return err
	}
	counted := new(tally)
	var pages *admin.Server
	if o.admin != "" {
		if pages, err = (gauges{holder, s, reports, counted, limit}).listen(o.admin, log); err != nil {
			return err
		}
	}
	log.Info("reporting", "replica", o.replica, "model", o.model, "hash_scheme", o.scheme, "endpoint", o.endpoint, "index", o.index)

	var wg sync.WaitGroup
	defer wg.Wait()
	if o.metrics != "" {
		wg.Go(func() { (&stats{o, client, log, reports.Resync, counted}).run(ctx) })
	}
	if pages != nil {
		wg.Go(func() {
			if err := pages.Run(ctx); err != nil {
				log.Warn("the admin pages have ended", "error", err)
			}
		})
	}
	return outlived(ctx, s, reports, log)
}

// runner is the subscriber or the reporter.
type runner interface{ Run(context.Context) error }

// outlived runs the subscriber until ctx ends, and the reporter until the subscriber has
// ended, so that its last report is complete.
func outlived(ctx context.Context, subscriber, reports runner, log *slog.Logger) error {
	reporting, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := reports.Run(reporting); err != nil {
			log.Warn("the index did not accept the last report", "error", err)
		}
	})
	defer wg.Wait()
	defer stop()
	return subscriber.Run(ctx)
}

// reporting returns the options of the reporter.
func (o options) reporting(log *slog.Logger) reporter.Options {
	return reporter.Options{Tenant: o.tenant, Model: o.model, Window: o.window, Timeout: o.timeout, Backoff: o.backoff, Log: log}
}

// subscription returns the options of the subscription whose events are reported.
// Batches that have been received when the sidecar ends are in its last report.
func (o options) subscription(log *slog.Logger) kvevents.Options {
	return kvevents.Options{
		Replica: o.replica, Rank: o.rank, Endpoint: o.endpoint, ReplayEndpoint: o.replay, Topic: o.topic,
		Tenant: o.tenant, Model: o.model, Scheme: o.scheme, Full: o.full,
		RetryAfter: o.again, DrainWithin: o.timeout, Log: log,
	}
}
