//go:build !noembed

package link

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"warmroute/internal/peers"
)

// embed starts a NATS server in this process that clusters with the other
// routers' servers. Its client port is on loopback, because the server's
// cluster waits for one, and accepts only clients with a secret of this
// process.
func embed(o Config, id string, routes []string) (natsServer, []nats.Option, error) {
	listen, err := withPort(o.Listen)
	if err != nil {
		return nil, nil, fmt.Errorf("peers.listen: %w", err)
	}
	host, port, _ := net.SplitHostPort(listen) // withPort has done so
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, nil, fmt.Errorf("peers.listen: %w", err)
	}
	if number == 0 {
		number = -1 // any
	}
	so := &server.Options{
		ServerName: id, Host: "127.0.0.1", Port: -1, Authorization: rand.Text(), NoSigs: true, NoLog: true, NoSystemAccount: true, MaxPayload: peers.MaxMessage, WriteDeadline: writeDeadline,
		Cluster: server.ClusterOpts{Name: o.Fleet, Host: host, Port: number, PoolSize: -1, ConnectRetries: 1 << 30},
	}
	token, err := o.token()
	if err != nil {
		return nil, nil, err
	}
	var user *url.Userinfo
	if token != "" {
		so.Cluster.Username, so.Cluster.Password = clusterUser, token
		user = url.UserPassword(clusterUser, token)
	}
	if so.Cluster.TLSConfig, err = certificates(o.TLS); err != nil {
		return nil, nil, err
	}
	so.Cluster.TLSTimeout = handshake.Seconds()
	if o.Advertise != "" {
		if so.Cluster.Advertise, err = withPort(o.Advertise); err != nil {
			return nil, nil, fmt.Errorf("peers.advertise: %w", err)
		}
	}
	so.Routes = routeURLs(routes, user)
	ns, err := server.NewServer(so)
	if err != nil {
		return nil, nil, fmt.Errorf("peers: embedded NATS server: %w", err)
	}
	ns.Start()
	if !ns.ReadyForConnections(startTime) || ns.ClusterAddr() == nil {
		ns.Shutdown()
		return nil, nil, errors.New("peers: the embedded NATS server cannot listen on " + o.Listen)
	}
	return &embedded{ns: ns, options: so, user: user}, []nats.Option{nats.InProcessServer(ns), nats.Token(so.Authorization)}, nil
}

const (
	clusterUser   = "warmroute"
	startTime     = 10 * time.Second
	handshake     = 5 * time.Second
	writeDeadline = 2 * time.Second // a peer that does not read is disconnected, and requests a full message when it is back
)

func routeURLs(routes []string, user *url.Userinfo) (urls []*url.URL) {
	for _, to := range routes {
		urls = append(urls, &url.URL{Scheme: "nats-route", Host: to, User: user})
	}
	return urls
}

// embedded is a running server.
type embedded struct {
	ns      *server.Server
	options *server.Options // with which it was started
	user    *url.Userinfo   // in the addresses that it dials
}

func (e *embedded) addr() string { return e.ns.ClusterAddr().String() }
func (e *embedded) routes() int  { return e.ns.NumRoutes() }

func (e *embedded) dial(routes []string) error {
	next := e.options.Clone()
	next.Routes = routeURLs(routes, e.user)
	if err := e.ns.ReloadOptions(next); err != nil {
		return fmt.Errorf("peers: dial other routers: %w", err)
	}
	return nil
}

func (e *embedded) stop() {
	e.ns.Shutdown()
	e.ns.WaitForShutdown()
}
