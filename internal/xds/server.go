package xds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"warmroute/internal/certs"
)

// keepalive bounds: how often Envoy may ask whether the connection lives, and
// how soon an Envoy that is gone without a word counts as such.
const (
	pingLeast = time.Second
	askAfter  = 10 * time.Second
	askFor    = 5 * time.Second
)

// Listener is the port of a Publisher.
type Listener struct {
	*Publisher
	net.Listener               // nil where only files are written
	certs        *certs.Source // nil without TLS
}

// Listen takes the address, if there is one, so that what is wrong with it is an
// error at the start.
func (p *Publisher) Listen() (*Listener, error) {
	l := &Listener{Publisher: p}
	if p.options.Listen == "" {
		return l, nil
	}
	var err error
	if p.options.TLS.Enabled() {
		if l.certs, err = certs.New(p.options.TLS, p.log); err != nil {
			return nil, fmt.Errorf("xds: %w", err)
		}
	}
	if l.Listener, err = net.Listen("tcp", p.options.Listen); err != nil {
		return nil, fmt.Errorf("xds: %w", err)
	}
	return l, nil
}

// Close gives the address back without serving.
func (l *Listener) Close() error {
	if l.Listener == nil {
		return nil
	}
	return l.Listener.Close()
}

// Run publishes and serves until ctx ends.
func (l *Listener) Run(ctx context.Context) error {
	if l.Listener == nil {
		return l.follow(ctx)
	}
	options := []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingLeast, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: askAfter, Timeout: askFor}),
	}
	if l.certs != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(l.certs.Server("h2"))))
	}
	g := grpc.NewServer(append(options, grpc.WaitForHandlers(true))...) // Run ends after its streams
	group, ctx := errgroup.WithContext(ctx)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, serverv3.NewServer(ctx, l.cache, l.acks.callbacks()))
	if at, ok := l.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() && l.options.TLS.ClientCAFile == "" {
		l.log.Warn("whoever reaches the xDS port may read what Envoy is told: set xds.tls.client_ca_file", "listen", l.Addr().String())
	}
	l.log.Info("serving xDS", "listen", l.Addr().String())
	group.Go(func() error { return l.follow(ctx) })
	if l.certs != nil {
		group.Go(func() error { return l.certs.Run(ctx) })
	}
	group.Go(func() error {
		<-ctx.Done()
		g.Stop() // Envoys keep what they have
		return nil
	})
	group.Go(func() error {
		if err := g.Serve(l.Listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("xds: %w", err)
		}
		return nil
	})
	return group.Wait()
}
