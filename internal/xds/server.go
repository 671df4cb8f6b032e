package xds

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
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

// port is an address where xDS is served.
type port struct {
	net.Listener
	at    Options
	certs *certs.Source // nil without TLS
	stop  func()
}

// bindAgain is the wait before an address that could not be taken is tried again.
const bindAgain = 5 * time.Second

// Listen takes the address, if there is one, so that a wrong address is an
// error at the start. Run serves there.
func (p *Publisher) Listen() (err error) {
	p.bound, err = p.open(p.wants().At)
	return err
}

// open listens at o's address; nil without one.
func (p *Publisher) open(o Options) (*port, error) {
	next := &port{at: o}
	if o.Listen == "" {
		return next, nil
	}
	var err error
	if next.certs, err = p.identity(o); err != nil {
		return nil, err
	}
	if next.Listener, err = listen.TCP(o.Listen, maxEnvoys); err != nil {
		return nil, fmt.Errorf("xds.listen: %w; a second router on one machine needs an address of its own, or `xds: {listen: \"\"}` if no Envoy is to follow it", err)
	}
	return next, nil
}

// identity reads the certificates that o names, if any.
func (p *Publisher) identity(o Options) (*certs.Source, error) {
	if !o.TLS.Enabled() {
		return nil, nil //nolint:nilnil // TLS without certificates is no error
	}
	c, err := certs.New(o.TLS, p.log)
	if err != nil {
		return nil, fmt.Errorf("xds.tls.%w", err)
	}
	return c, nil
}

// Run publishes and serves until ctx ends. It opens another address when Set
// changes it.
func (p *Publisher) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.follow(ctx) })
	group.Go(func() error { p.serve(ctx); return nil })
	return group.Wait()
}

// serve serves at the address of the configuration, and at earlier ones, which
// Envoys have from their bootstraps.
func (p *Publisher) serve(ctx context.Context) {
	var open []*port // the last port is the configured one
	if p.bound != nil && p.bound.Listener != nil {
		open = []*port{p.start(ctx, p.bound)}
	}
	defer func() { closeAll(open) }()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.moved:
		case <-again:
		}
		again = nil
		var err error
		if open, err = p.move(ctx, open, p.wants().At); err != nil {
			p.log.Error("xDS does not listen at the configured address", "error", err)
			p.setNote(&p.notes.unbound, err.Error())
			again = time.After(bindAgain)
			continue
		}
		p.setNote(&p.notes.unbound, "")
		p.setNote(&p.notes.former, movedAddresses(open))
	}
}

// move opens the address of o in addition to the open ones, and closes ports that require
// other certificates of Envoys; without an address it closes all.
func (p *Publisher) move(ctx context.Context, open []*port, o Options) ([]*port, error) {
	if o.Listen == "" {
		closeAll(open)
		return nil, nil
	}
	if i := slices.IndexFunc(open, func(at *port) bool { return at.at.Listen == o.Listen && at.at.TLS == o.TLS }); i >= 0 {
		at := open[i]
		return append(slices.Delete(open, i, i+1), at), nil
	}
	if _, err := p.identity(o); err != nil {
		return open, err
	}
	open = keep(open, func(at *port) bool { return at.at.Listen != o.Listen }) // the address must be free to be taken again
	next, err := p.open(o)
	if err != nil {
		return open, err
	}
	open = keep(open, func(at *port) bool { return at.at.TLS == o.TLS })
	return append(open, p.start(ctx, next)), nil
}

// keep closes the ports for which stays is false. Envoys keep their state.
func keep(open []*port, stays func(*port) bool) []*port {
	return slices.DeleteFunc(open, func(at *port) bool {
		if stays(at) {
			return false
		}
		at.stop()
		return true
	})
}

func closeAll(open []*port) { keep(open, func(*port) bool { return false }) }

// movedAddresses returns the note for Envoys at an address before the configured one.
func movedAddresses(open []*port) string {
	if len(open) < 2 {
		return ""
	}
	var addrs []string
	for _, at := range open[:len(open)-1] {
		addrs = append(addrs, at.at.Listen)
	}
	return fmt.Sprintf("xds.listen has changed: Envoys that were started with %s are served there until the router restarts; print their bootstrap again with `extproc envoy-config` and restart them",
		strings.Join(addrs, " or "))
}

// start serves at a port until its stop is called, which waits for the end.
func (p *Publisher) start(ctx context.Context, at *port) *port {
	options := []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingLeast, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: askAfter, Timeout: askFor}),
		grpc.ConnectionTimeout(handshake),
		grpc.WaitForHandlers(true), // Stop waits for its streams
	}
	if at.certs != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(at.certs.Server("h2"))))
	}
	ctx, cancel := context.WithCancel(ctx)
	g := grpc.NewServer(options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, serverv3.NewServer(ctx, p.cache, p.acks.callbacks()))
	p.log.Info("serving xDS", "listen", at.Addr().String())
	var running sync.WaitGroup
	running.Go(func() {
		if err := g.Serve(at.Listener); err != nil {
			p.log.Error("xDS is no longer served", "error", err)
			p.setNote(&p.notes.unbound, fmt.Sprintf("xDS is no longer served: %v", err))
		}
	})
	if at.certs != nil {
		running.Go(func() {
			if err := at.certs.Run(ctx); err != nil {
				p.log.Error("certificates are no longer read again", "error", err)
			}
		})
	}
	at.stop = func() {
		cancel()
		g.Stop()
		running.Wait()
	}
	return at
}
