package xds

import (
	"context"
	"fmt"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"warmroute/internal/certs"
	"warmroute/internal/listen"
)

// pingLeast is the least time between Envoy's pings of a connection. The other bounds say
// how soon an Envoy that disappears without closing counts as gone.
const (
	pingLeast = time.Second
	askAfter  = 10 * time.Second
	askFor    = 5 * time.Second
	handshake = 5 * time.Second // for a new connection to speak HTTP/2
	maxEnvoys = 1024            // connections at a time
)

// Listen takes the address, if there is one, so that a wrong address is an
// error at the start. Run serves there.
func (p *Publisher) Listen() (err error) {
	o := p.wants().At
	if o.Listen == "" {
		return nil
	}
	if o.TLS.Enabled() {
		if p.certs, err = certs.New(o.TLS, p.log); err != nil {
			return fmt.Errorf("xds.tls.%w", err)
		}
	}
	if p.listener, err = listen.TCP(o.Listen, maxEnvoys); err != nil {
		return fmt.Errorf("xds.listen: %w; a second router on one machine needs an address of its own, or `xds: {listen: \"\"}` if no Envoy is to follow it", err)
	}
	return nil
}

// Run publishes and serves until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.follow(ctx) })
	if p.listener != nil {
		group.Go(func() error { p.serve(ctx); return nil })
		group.Go(func() error { return p.certs.Run(ctx) })
	}
	return group.Wait()
}

// serve serves at the address until ctx ends.
func (p *Publisher) serve(ctx context.Context) {
	options := []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingLeast, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: askAfter, Timeout: askFor}),
		grpc.ConnectionTimeout(handshake),
		grpc.WaitForHandlers(true), // Stop waits for its streams
	}
	if p.certs != nil {
		options = append(options, grpc.Creds(p.certs.Credentials()))
	}
	g := grpc.NewServer(options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, serverv3.NewServer(ctx, p.cache, p.acks.callbacks()))
	p.log.Info("serving xDS", "listen", p.listener.Addr().String())
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		g.Stop()
	})
	if err := g.Serve(p.listener); err != nil && ctx.Err() == nil {
		p.log.Error("xDS is no longer served", "error", err)
		p.setNote(&p.notes.unserved, fmt.Sprintf("xDS is no longer served: %v", err))
	}
	if !stop() {
		<-stopped
	}
}
