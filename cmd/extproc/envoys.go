package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"warmroute/cmd/extproc/internal/outcome"
	"warmroute/cmd/extproc/internal/tracing"
	"warmroute/filter"
	"warmroute/internal/admin"
	"warmroute/internal/certs"
	"warmroute/internal/extprocwire"
	"warmroute/internal/listen"
	"warmroute/internal/prefill"
	"warmroute/internal/telemetry"
	"warmroute/internal/tokens"
)

const (
	// maxMessage is the largest message that grpc-go receives. Its default of 4 MiB
	// would cut multimodal bodies; Envoy's own buffer limit is the one to set.
	maxMessage = 256 << 20
	// streamWindow and connWindow let a usual body come in one flight, without
	// window updates and the pings that estimate them; connWindow bounds the bytes
	// of one Envoy worker under way.
	streamWindow = 1 << 20
	connWindow   = 16 << 20
	// pingEvery is the least time between pings of a connection: half the time
	// configured in Envoy; sidecars ping the index service every 10 s. By default grpc-go allows a ping in five minutes and
	// ends the connection, with every stream on it, at the third that comes sooner.
	pingEvery = 500 * time.Millisecond
	// maxEnvoys bounds the connections of the port for Envoy: two or three for each
	// worker of each Envoy, and health checks.
	maxEnvoys = 1024
	// handshake is how long a new connection may take to speak HTTP/2.
	handshake = 5 * time.Second
	// askAfter is how long a client may send nothing before it must answer a ping,
	// within askFor: so a client that is gone holds no connection.
	askAfter = 30 * time.Second
	askFor   = 10 * time.Second
	// ioBuffer holds a few messages of one connection.
	ioBuffer = 64 << 10
	// streamWorkers are goroutines that follow one stream after the other, and keep the deep
	// stack that a decision needs. While all of them are busy, a stream gets a goroutine of
	// its own. Unused, one takes 2 KB.
	streamWorkers = 256
	// drainTime bounds how long requests in flight may go on after SIGTERM: a stream
	// lives as long as its request, and generations are long. Cutting a stream only
	// costs the release of its charge.
	drainTime = 10 * time.Second
)

// envoys answers the Envoys: about requests, and their access logs.
type envoys struct {
	log    *slog.Logger
	door   *occupied       // nil until it listens
	certs  *certs.Source   // nil without TLS
	tracer *tracing.Tracer // nil when off
	filter *filter.Router
	server *filter.Server
	legs   *prefill.Sender
	logs   *outcome.Server
}

// newEnvoys makes what answers from the decisions and tells o how requests end.
func newEnvoys(c Config, o *outcomes, log *slog.Logger, reg prometheus.Registerer) (*envoys, error) {
	t, d := o.ids, o.decisions
	e := &envoys{log: log, logs: o.server}
	routing := c.routerOptions()
	routing.Turns, routing.Log = t.turns, log
	routing.Requests, routing.Usage, routing.Prefilled = o.requests, o.wantsUsage, o.learnPrefill
	var err error
	if c.Tracing.Enabled() {
		if e.tracer, err = tracing.New(c.Tracing, telemetry.ReadBuild().Version, reg, log); err != nil {
			return nil, err
		}
		routing.Tracer = e.tracer
	}
	if c.TLS.Enabled() {
		if e.certs, err = certs.New(c.TLS, log); err != nil {
			return nil, fmt.Errorf("tls.%w", err)
		}
	}
	client, err := c.Fleet.HTTP.Client(prefill.Connections)
	if err != nil {
		return nil, err
	}
	e.legs = prefill.New(prefill.Options{Client: client, URL: c.Fleet.HTTP.URL, Answers: &d.replicas.answers})
	source := &tokens.Chooser{Local: t.local, Remote: t.remote, Lanes: new(tokens.Lanes)}
	e.filter = filter.NewRouter(d.decider, source, d.ring, o.counted, routing)
	e.server = filter.NewServer(e.filter, c.serverOptions(e.legs, e.log))
	return e, nil
}

// set applies another configuration. legs sends prefills; nil: as before.
func (e *envoys) set(c Config, legs *http.Client) {
	e.legs.Set(prefill.Options{Client: legs, URL: c.Fleet.HTTP.URL})
	e.server.Set(c.serverOptions(e.legs, e.log))
	e.filter.SetBudget(c.Filter.TokenBudget)
}

// listen takes the address that Envoys dial.
func (e *envoys) listen(addr string) error {
	listener, err := listen.TCP(addr, maxEnvoys)
	if err != nil {
		return fmt.Errorf("listen for Envoy: %w", err)
	}
	e.door = &occupied{Listener: listener}
	return nil
}

// serve answers until ctx ends. Then it shuts gate, gives Envoys the time of lameDuck to notice, and
// requests in flight theirs to end.
func (e *envoys) serve(ctx context.Context, gate *admin.Gate, lame time.Duration) error {
	asked, drained := context.WithCancel(context.WithoutCancel(ctx)) // streams that never end by themselves
	defer drained()
	g := grpc.NewServer(grpcOptions(e.certs)...)
	extprocv3.RegisterExternalProcessorServer(g, e.server)
	admin.RegisterHealth(asked, g, gate)
	e.logs.Register(asked, g)
	front, ctx := errgroup.WithContext(ctx)
	front.Go(func() error { return g.Serve(e.door) })
	front.Go(func() error {
		<-ctx.Done()
		gate.Shut("going down")
		e.server.Drain()
		if connected := func() bool { return e.door.open.Load() > 0 }; lame > 0 && connected() {
			e.log.Info("going down: health checks fail, and Envoys have time to notice; a second signal ends at once", "lame_duck", lame)
			lameDuck(lame, connected)
		}
		drained()
		defer time.AfterFunc(drainTime, g.Stop).Stop()
		g.GracefulStop()
		return nil
	})
	return front.Wait()
}

// Run renews certificates and sends spans until ctx ends.
func (e *envoys) Run(ctx context.Context) error { return together(ctx, e.tracer.Run, e.certs.Run) }

// grpcOptions are the options of the server that Envoy dials.
func grpcOptions(tls *certs.Source) []grpc.ServerOption {
	options := append(lasting(),
		grpc.ForceServerCodecV2(extprocwire.NewCodec()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connWindow),
		grpc.ReadBufferSize(ioBuffer), grpc.WriteBufferSize(ioBuffer), grpc.NumStreamWorkers(streamWorkers),
	)
	if tls != nil {
		options = append(options, grpc.Creds(tls.Credentials()))
	}
	return options
}

// lasting bounds the life of an unused connection, and permits the pings by which clients do so.
func lasting() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(handshake), grpc.KeepaliveParams(keepalive.ServerParameters{Time: askAfter, Timeout: askFor}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery, PermitWithoutStream: true}),
	}
}

// occupied is a listener that counts its open connections.
type occupied struct {
	net.Listener
	open atomic.Int64
}

func (o *occupied) Accept() (net.Conn, error) {
	conn, err := o.Listener.Accept()
	if err != nil {
		return nil, err
	}
	o.open.Add(1)
	return &occupant{Conn: conn, left: sync.OnceFunc(func() { o.open.Add(-1) })}, nil
}

// notes says that nobody is connected.
func (o *occupied) notes() []string {
	if o.open.Load() > 0 {
		return nil
	}
	return []string{fmt.Sprintf("no Envoy is connected to %s, so no request gets a hint; an Envoy connects with its first request", o.Addr())}
}

type occupant struct {
	net.Conn
	left func()
}

func (c *occupant) Close() error {
	c.left()
	return c.Conn.Close()
}

// lookForEnvoys is how often lameDuck looks whether anybody is connected.
const lookForEnvoys = 50 * time.Millisecond

// lameDuck waits for the time in which Envoys notice that the router is not healthy any
// more, or until none is connected.
func lameDuck(most time.Duration, connected func() bool) {
	for end := time.Now().Add(most); time.Now().Before(end) && connected(); {
		time.Sleep(min(lookForEnvoys, time.Until(end)))
	}
}
