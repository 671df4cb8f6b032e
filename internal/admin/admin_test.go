package admin

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"warmroute/render/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a server and returns its URL and a function that stops it and returns Run's
// error.
func serve(t *testing.T, o Options) (url string, stop func() error) {
	t.Helper()
	o.Listen = "127.0.0.1:0"
	s := must.Get(Listen(o))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return "http://" + s.Addr(), func() error { cancel(); return <-done }
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp := must.Get((&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(url))(t)
	defer resp.Body.Close()
	body := must.Get(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(body)
}

func TestServer(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "warmroute_x", Help: "X."}))
	var gate Gate
	url, stop := serve(t, Options{Metrics: registry, Ready: gate.Ready, Notes: func() []string { return []string{"one is stale", "another is"} }, Handlers: map[string]http.Handler{
		"GET /explain": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "because") }),
	}})
	expect := func(path string, code int, body string) {
		t.Helper()
		if c, b := get(t, url+path); c != code || !strings.Contains(b, body) {
			t.Errorf("%s: %d %q, want %d %q", path, c, b, code, body)
		}
	}
	expect("/healthz", 200, "ok\n")
	expect("/readyz", 503, "not ready: starting\n")
	why := errors.New("10.0.0.1:8000 is not synced")
	gate.Open(func() error { return why }, func() error { return nil })
	expect("/readyz", 503, "not ready: 10.0.0.1:8000 is not synced\n")
	why = nil
	expect("/readyz", 200, "ready\nnote: one is stale\nnote: another is\n")
	expect("/metrics", 200, "warmroute_x 0\n")
	expect("/explain", 200, "because")
	expect("/", 200, "/explain\n/healthz\n/metrics\n/readyz\n")
	expect("/debug/pprof/", 404, "")
	expect("/nothing", 404, "")
	resp, err := http.Post(url+"/healthz", "", nil)
	if err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v, %v", resp, err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	gate.Shut("draining")
	gate.Shut("later")
	gate.Open()
	expect("/readyz", 503, "not ready: draining\n")
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestPprofAndDefaults(t *testing.T) {
	url, stop := serve(t, Options{Pprof: true})
	if code, body := get(t, url+"/debug/pprof/goroutine?debug=1"); code != 200 || !strings.Contains(body, "goroutine profile") {
		t.Errorf("%d %.80q", code, body)
	}
	if code, _ := get(t, url+"/readyz"); code != 200 {
		t.Errorf("without a readiness function: %d", code)
	}
	if code, _ := get(t, url+"/metrics"); code != 404 {
		t.Errorf("without metrics: %d", code)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A mistake is an error of Listen, not a log line later.
func TestListenFails(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	for name, o := range map[string]Options{
		"taken port":   {Listen: l.Addr().String()},
		"no address":   {Listen: "nowhere"},
		"pattern":      {Listen: "127.0.0.1:0", Handlers: map[string]http.Handler{"GET /healthz": http.NotFoundHandler()}},
		"bad pattern":  {Listen: "127.0.0.1:0", Handlers: map[string]http.Handler{"": http.NotFoundHandler()}},
		"nil handler":  {Listen: "127.0.0.1:0", Handlers: map[string]http.Handler{"/x": nil}},
		"no such host": {Listen: "256.0.0.1:1"},
	} {
		if s, err := Listen(o); err == nil {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	s, err := Listen(Options{Listen: "127.0.0.1:0"})
	if err != nil || s.Close() != nil {
		t.Error(err)
	}
	if err := s.Run(t.Context()); err == nil {
		t.Error("Run after Close is not an error")
	}
}

// Answers in flight are finished.
func TestGracefulShutdown(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	url, stop := serve(t, Options{Handlers: map[string]http.Handler{
		"/slow": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(begun)
			<-finish
			_, _ = io.WriteString(w, "done")
		}),
	}})
	answer := make(chan string)
	go func() {
		_, body := get(t, url+"/slow")
		answer <- body
	}()
	<-begun
	stopped := make(chan error)
	go func() { stopped <- stop() }()
	for { // until the server has begun to stop
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			break
		}
		c.Close()
	}
	close(finish)
	if got := <-answer; got != "done" {
		t.Errorf("the answer in flight is %q", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestGRPCHealth(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var gate Gate
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	watches, endWatches := context.WithCancel(ctx)
	server := grpc.NewServer()
	RegisterHealth(watches, server, &gate)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn := must.Get(grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	check := func(service string, want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		r, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: service})
		if err != nil || r.Status != want {
			t.Errorf("%q: %v, %v; want %v", service, r, err, want)
		}
	}
	const serving, not = healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING
	names := []string{"", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"}
	for _, name := range names {
		check(name, not)
	}
	check("liveness", serving)
	watch := must.Get(client.Watch(ctx, &healthpb.HealthCheckRequest{Service: "readiness"}))(t)
	next := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if r, err := watch.Recv(); err != nil || r.Status != want {
			t.Fatalf("watch: %v, %v; want %v", r, err, want)
		}
	}
	next(not)
	gate.Open()
	next(serving)
	for _, name := range names {
		check(name, serving)
	}
	if all, err := client.List(ctx, &healthpb.HealthListRequest{}); err != nil || len(all.Statuses) != 4 || all.Statuses["liveness"].Status != serving {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown service: %v", err)
	}
	unknown := must.Get(client.Watch(ctx, &healthpb.HealthCheckRequest{Service: "other"}))(t)
	if r, err := unknown.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
		t.Errorf("watching an unknown service: %v, %v", r, err)
	}
	gate.Shut("going down")
	next(not)
	check("liveness", not)
	endWatches()
	server.GracefulStop() // does not hang on the watches
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the watch ends with %v", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
