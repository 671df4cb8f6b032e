package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"warmroute/internal/admin"
	"warmroute/internal/config"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// TestGoingDown: health fails first, and requests are still answered while an Envoy is
// connected; when none is, nothing is waited for.
func TestGoingDown(t *testing.T) {
	at, dir := testenv.Addresses(t, 3), t.TempDir()
	sim := testenv.StartSimulator(t)
	file := &config.File[Config]{Path: filepath.Join(dir, "warmroute.yaml"), Defaults: defaultConfig}
	r, _ := routerOf(t, file, fmt.Sprintf("listen: %s\nlame_duck: 1h\nadmin: {listen: %q}\nindex_service: {listen: \"\"}\nxds: {listen: \"\"}\nfleet: {replicas: [{address: %q, no_events: true}]}\n", at[0], at[1], sim.Addr))
	ctx, terminate := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx, file) }()
	until(t, "the router is ready", func() bool { code, _ := get(t, "http://"+at[1]+"/readyz"); return code == http.StatusOK })
	conn := must.Get(grpc.NewClient(at[0], grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	defer conn.Close()
	health := func(name string) healthpb.HealthCheckResponse_ServingStatus {
		a := must.Get(healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name}))(t)
		return a.Status
	}
	if got := health(admin.Liveness); got != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("liveness is %v", got)
	}
	terminate()
	until(t, "Envoy's health check fails", func() bool { return health(admin.Liveness) == healthpb.HealthCheckResponse_NOT_SERVING })
	if got := health(admin.ExternalProcessor); got != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("the service is %v", got)
	}
	for path, want := range map[string]int{"/readyz": http.StatusServiceUnavailable, "/healthz": http.StatusOK} {
		if code, body := get(t, "http://"+at[1]+path); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	stream := must.Get(extprocv3.NewExternalProcessorClient(conn).Process(t.Context()))(t)
	must.Do(t, stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{EndOfStream: true}}}))
	if _, err := stream.Recv(); err != nil {
		t.Errorf("a request while the router goes down: %v", err)
	}
	conn.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestPings: an Envoy or a sidecar may ping as often as it is told to and send nothing else. One that
// does not answer pings itself is gone.
func TestPings(t *testing.T) {
	t.Run("an Envoy", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { pinging(t, grpcOptions(nil)) }) })
	t.Run("a sidecar", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { pinging(t, lasting()) }) })
}

func pinging(t *testing.T, options []grpc.ServerOption) {
	t.Helper()
	listener := bufconn.Listen(ioBuffer)
	g := grpc.NewServer(options...)
	var served sync.WaitGroup
	served.Go(func() { _ = g.Serve(listener) })
	defer served.Wait()
	defer g.Stop()
	conn, err := listener.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var answered atomic.Int64
	framer, gone := http2.NewFramer(conn, conn), make(chan time.Time, 1)
	go func() {
		for {
			f, err := framer.ReadFrame()
			if err != nil {
				gone <- time.Now()
				return
			}
			if p, is := f.(*http2.PingFrame); is && p.IsAck() {
				answered.Add(1)
			}
		}
	}()
	_, err = io.WriteString(conn, http2.ClientPreface)
	err = errors.Join(err, framer.WriteSettings(), framer.WriteSettingsAck())
	const pings = 20
	for range pings {
		time.Sleep(time.Second)
		err = errors.Join(err, framer.WritePing(false, [8]byte{}))
	}
	last := time.Now()
	if silent := (<-gone).Sub(last); err != nil || answered.Load() != pings || silent != askAfter+askFor {
		t.Errorf("%d of %d pings are answered, %v; the connection ends %v after the last", answered.Load(), pings, err, silent)
	}
}

// TestLameDuck: the port stays open for its time while an Envoy is connected, and no longer.
func TestLameDuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for leaves, want := range map[time.Duration]time.Duration{0: 0, time.Second: time.Second, time.Hour: 5 * time.Second} {
			start := time.Now()
			lameDuck(5*time.Second, func() bool { return time.Since(start) < leaves })
			if took := time.Since(start); took != want {
				t.Errorf("the last Envoy leaves after %v: it took %v, want %v", leaves, took, want)
			}
		}
	})
}

// TestOccupied: a connection counts until it is closed, once.
func TestOccupied(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	o := &occupied{Listener: l}
	defer o.Close()
	conn := must.Get(net.Dial("tcp", l.Addr().String()))(t)
	defer conn.Close()
	inside, err := o.Accept()
	if err != nil || o.open.Load() != 1 {
		t.Fatalf("%d connections, %v", o.open.Load(), err)
	}
	inside.Close()
	inside.Close()
	if n := o.open.Load(); n != 0 {
		t.Errorf("%d connections after the only one was closed twice", n)
	}
}
