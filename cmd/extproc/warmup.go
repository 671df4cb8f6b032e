package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"warmroute/index/indexpb"
	"warmroute/internal/indexrpc"
	"warmroute/internal/listen"
)

// WarmUpConfig says from where a starting router takes the index, instead of
// reading everything again.
type WarmUpConfig struct {
	Peers   []string        `yaml:"peers,omitempty"` // `index_service` addresses of other routers of the same fleet, tried in order, host:port
	Timeout time.Duration   `yaml:"timeout"`         // longest wait for all of them together; then the router starts without their index
	Access  indexrpc.Access `yaml:",inline"`
}

// Validate returns every problem of c, one sentence each.
func (c WarmUpConfig) Validate() error {
	var errs []error
	for i, addr := range c.Peers {
		if err := listen.HostPort(addr); err != nil {
			errs = append(errs, fmt.Errorf("peers[%d]: %w", i, err))
			continue
		}
		if c.Access.TLS.Validate() == nil {
			errs = append(errs, c.Access.Validate(addr))
		}
	}
	if err := c.Access.TLS.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("tls.%w", err))
	}
	if c.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("timeout: %v is not positive", c.Timeout))
	}
	return errors.Join(errs...)
}

// warmUp takes the index of the first peer that gives it. Without one the router
// learns from its replicas, as without peers.
func (k *replicas) warmUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, k.warm.Timeout)
	defer cancel()
	for _, peer := range k.warm.Peers {
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
	conn, err := indexrpc.Dial(peer, k.warm.Access)
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
