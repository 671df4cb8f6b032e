package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/index"
	"warmroute/index/indexpb"
	"warmroute/internal/certs"
	"warmroute/internal/feed"
	"warmroute/internal/fleet"
	"warmroute/internal/indexrpc"
	"warmroute/internal/intake"
	"warmroute/internal/kube"
	"warmroute/internal/listen"
	"warmroute/internal/load"
	"warmroute/internal/problems"
)

// replicas is what the router knows of the replicas: which there are, which blocks they
// hold, what they have to do.
type replicas struct {
	log     *slog.Logger
	peers   []string        // whose index is taken at the start
	access  indexrpc.Access // to their index services
	pool    *kube.Status
	fleet   *fleet.Fleet
	index   *index.Index
	feed    *feed.Feed
	ledger  *load.Ledger
	service indexService  // of index
	answers intake.Budget // bytes of the replicas' answers that are being read
	begun   atomic.Bool   // they were ready once
}

// sleepsEmpty reports whether a replica sleeps without a KV cache.
func (k *replicas) sleepsEmpty(addr string) bool {
	r := k.fleet.Snapshot().Replica(addr)
	return r != nil && r.Empty
}

// newReplicas makes them. following is told whose KV events are read, left which replicas have
// left.
func newReplicas(c Config, log *slog.Logger, reg prometheus.Registerer, following func(index.Holder, bool), left func(replica string)) (*replicas, error) {
	k := &replicas{log: log, peers: c.WarmUp.Peers, access: indexrpc.Access{TLS: c.WarmUp.TLS, TokenFile: c.IndexService.TokenFile}, pool: kube.NewStatus(), ledger: load.NewLedger(nil)}
	var err error
	k.index = index.New(c.Index.options())
	k.service = newIndexService(c, k.index, func() []index.Cursor { return k.feed.Cursors() }, k.sleepsEmpty, log)
	k.feed = feed.New(k.index, feed.Options{
		Log: log, Applied: k.ledger.Applied, Following: following, OnLeave: left,
		AdapterPath: func(ctx context.Context, replica, name string, ask bool) string {
			return k.fleet.AdapterPath(ctx, replica, name, ask)
		},
		Snapshot: func() *fleet.Snapshot { return k.fleet.Snapshot() },
	})
	o := c.Fleet
	o.Registerer, o.Logger, o.Served = reg, log, c.XDS.Served()
	if c.Kubernetes.Enabled() {
		source, err := kube.New(c.Kubernetes, k.pool, log)
		if err != nil {
			return nil, err
		}
		o.Sources, o.Templates = append(o.Sources, source), append(o.Templates, c.Kubernetes.Replica)
	}
	if k.fleet, err = fleet.New(o, fleet.Hooks{Joined: k.feed.Join, Left: k.feed.Leave, Requests: k.ledger.Requests}); err != nil {
		return nil, err
	}
	k.ledger.Model = func(replica string) string { return k.fleet.Snapshot().Base(replica) }
	reg.MustRegister(append(k.service.Collectors(), k.feed, k.pool)...)
	return k, nil
}

// Run follows the replicas until ctx ends.
func (k *replicas) Run(ctx context.Context) error {
	return together(ctx, k.feed.Run, k.index.Run, k.service.Run, func(ctx context.Context) error {
		k.warmUp(ctx) // before the first replica joins
		return k.fleet.Run(ctx)
	})
}

// ready says why a router that starts cannot decide requests yet. A replica that joins later makes
// it no worse for the others, so it stays ready.
func (k *replicas) ready() error {
	if k.begun.Load() {
		return nil
	}
	err := k.behind()
	k.begun.Store(err == nil)
	return err
}

// behind says that the fleet has not settled, or that a replica's events have not been caught up
// with.
func (k *replicas) behind() error {
	if !k.fleet.Snapshot().Settled {
		return errors.New("not every replica has been contacted yet")
	}
	if addr, behind := k.feed.Behind(); behind {
		return fmt.Errorf("replica %s: past KV events have not been received yet", addr)
	}
	return nil
}

// baseOf returns the base model of a served model's name, "" if no replica serves it.
func (k *replicas) baseOf(model string) string {
	s := k.fleet.Snapshot()
	if m := s.Agreed(model, ""); m != nil {
		return m.Base
	}
	for _, rep := range s.Replicas { // of a tenant, or not ready any more
		if m := rep.Model(model); m != nil {
			return m.Base
		}
	}
	return ""
}

// account calls f for the accounts of a replica.
func (k *replicas) account(s *fleet.Snapshot, replica string, f func(*load.Account)) {
	rep := s.Replica(replica)
	if rep == nil {
		return
	}
	for _, rank := range rep.Ranks {
		if account := k.ledger.Find(index.Holder{Replica: replica, Rank: rank}); account != nil {
			f(account)
		}
	}
}

// notes lists what is wrong with the replicas in s, and with their sources.
func (k *replicas) notes(s *fleet.Snapshot) []string {
	notes := slices.Concat(k.pool.Notes(), k.service.Notes())
	if err := k.behind(); k.begun.Load() && err != nil {
		notes = append(notes, err.Error())
	}
	return append(append(append(append(notes, k.feed.Notes()...), s.Dissent()...), s.Notes...), unservedModels(s)...)
}

// WarmUpConfig says from where a starting router takes the index, instead of
// reading everything again.
type WarmUpConfig struct {
	Peers []string            `yaml:"peers,omitempty"` // `index_service` addresses of other routers, tried in order for 10 s
	TLS   certs.ClientOptions `yaml:"tls,omitempty"`   // TLS towards these services
}

// warmUpTimeout is the longest wait for all peers together; then the router starts without
// their index.
const warmUpTimeout = 10 * time.Second

// Validate returns every problem of c, one sentence each.
func (c WarmUpConfig) Validate() error {
	var p problems.List
	p.Add("", c.TLS.Validate("tls."))
	for i, addr := range c.Peers {
		p.Add(fmt.Sprintf("peers[%d]: ", i), listen.HostPort(addr))
	}
	return p.Err()
}

// warmUp takes the index of the first peer that gives it. Without one the router
// learns from its replicas, as without peers.
func (k *replicas) warmUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, warmUpTimeout)
	defer cancel()
	for _, peer := range k.peers {
		start := time.Now()
		n, blocks, err := k.takeFrom(ctx, peer)
		if err == nil {
			k.log.Info("copied the index of a peer", "peer", peer, "holders", n, "blocks", blocks, "took", time.Since(start).Round(time.Millisecond))
			return
		}
		k.log.Warn("a peer did not return its index", "peer", peer, "error", err)
	}
}

func (k *replicas) takeFrom(ctx context.Context, peer string) (holders, blocks int, err error) {
	conn, err := indexrpc.Dial(peer, k.access)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	cursors, res, err := indexrpc.Fetch(ctx, indexpb.NewCacheIndexClient(conn), k.index)
	if err != nil {
		return 0, 0, err
	}
	k.feed.Resume(cursors)
	return len(cursors), res.Stored, nil
}
