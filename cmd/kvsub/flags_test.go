package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"warmroute/index"
	"warmroute/index/indexpb"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/prefixhash"
)

// running is a sidecar of a publisher, started with flags; it ends with the test.
func running(t *testing.T, addr string, flags ...string) *kvtest.Publisher {
	t.Helper()
	p, err := kvtest.Start(kvtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	args := append([]string{"-endpoint", p.Endpoint(), "-replay", p.ReplayEndpoint(), "-index", addr, "-replica", "10.0.0.1:8000",
		"-model", "m", "-hash-scheme", "engine"}, flags...)
	go func() { done <- run(ctx, args, io.Discard, io.Discard) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		p.Close()
	})
	return p
}

// stored is a chain's block n of two tokens.
func stored(n uint64) kvtest.Event {
	e := kvtest.Event{Kind: kvtest.Stored, Hashes: []uint64{100 + n}, Tokens: []uint32{1, 2}, BlockSize: 2}
	if n > 0 {
		parent := 99 + n
		e.Parent = &parent
	}
	return e
}

// TestDurationsAreChecked: none of them may be zero, negative or not a duration.
func TestDurationsAreChecked(t *testing.T) {
	for _, name := range []string{"-window", "-rpc-timeout", "-backoff", "-reconnect-after", "-metrics-every", "-metrics-timeout"} {
		for value, want := range map[string]string{
			"0s": name + " 0s: must be positive", "-1s": name + " -1s: must be positive",
			"soon": `invalid value "soon" for flag ` + name, "5": `invalid value "5" for flag ` + name,
		} {
			if _, err := parse(reportingArgs(name, value), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: error %v, want %q", name, value, err, want)
			}
		}
		if _, err := parse(reportingArgs(name, "1ns"), io.Discard); err != nil {
			t.Errorf("%s 1ns: %v", name, err)
		}
	}
}

// TestTierAndCeilingAreChecked: only tiers that there are, no ceiling below none.
func TestTierAndCeilingAreChecked(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"-cache-tier", "auto", ""}, {"-cache-tier", "kv", ""}, {"-cache-tier", "gpu", ""}, {"-cache-tier", "cpu", ""},
		{"-cache-tier", "", `-cache-tier "": want auto, kv, gpu or cpu`},
		{"-cache-tier", "GPU", `-cache-tier "GPU": want auto, kv, gpu or cpu`},
		{"-ceiling", "0", ""}, {"-ceiling", "256", ""},
		{"-ceiling", "-1", "-ceiling -1: must not be negative"},
		{"-ceiling", "many", `invalid value "many" for flag -ceiling`},
		{"-ceiling", "1.5", `invalid value "1.5" for flag -ceiling`},
	} {
		_, err := parse(reportingArgs(c.name, c.value), io.Discard)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %q: error %v, want %q", c.name, c.value, err, c.want)
		}
	}
}

// patience is how long a test of a flag waits. By the flag's default it would
// take 20 s and more, by its value a second at most.
const patience = 15 * time.Second

// TestWindow: blocks that come one by one wait for others at most -window. By the
// default, 200 times 100 ms, it would be 20 s.
func TestWindow(t *testing.T) {
	const rounds = 200
	served := serveIndex(t, "127.0.0.1:0")
	p := running(t, served.addr, "-window", "100us")
	scope, end := index.Scope{Model: "m", Scheme: "engine", BlockSize: 2}, time.Now().Add(patience)
	var keys []prefixhash.Key
	for n := range uint64(rounds) {
		p.Publish(stored(n))
		keys = append(keys, prefixhash.Key(100+n))
		matched(t, served.x, scope, keys, int32(n+1))
		if time.Now().After(end) {
			t.Fatalf("%d blocks in %v: they waited longer than told", n+1, patience)
		}
	}
}

// TestBackoff: a call that the index refuses is repeated after -backoff. By the
// default, a second, 30 calls would take 29 s.
func TestBackoff(t *testing.T) {
	var refused atomic.Int32
	enough := make(chan struct{})
	served := serveIndex(t, "127.0.0.1:0", grpc.UnaryInterceptor(func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
		if refused.Add(1) == 30 {
			close(enough)
		}
		return nil, status.Error(codes.Internal, "not today")
	}))
	p := running(t, served.addr, "-backoff", "1ms")
	p.Publish(stored(0))
	select {
	case <-enough:
	case <-time.After(patience):
		t.Fatalf("%d calls in %v: the waits between them were longer than told", refused.Load(), patience)
	}
}

// TestRPCTimeout: every kind of call carries -rpc-timeout as its deadline, stats
// included.
func TestRPCTimeout(t *testing.T) {
	vllm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "vllm:num_requests_running 5\n") }))
	defer vllm.Close()
	var mu sync.Mutex
	waiting := map[string]bool{"PublishEvent": true, "StreamCacheState": true, "StreamEvents": true, "ReportCacheState": true}
	all := make(chan struct{})
	see := func(ctx context.Context, method string) {
		mu.Lock()
		defer mu.Unlock()
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > 7*time.Minute || time.Until(end) < 6*time.Minute {
			t.Errorf("%s: %v left of 7 minutes", method, time.Until(end))
		}
		if before := len(waiting); before > 0 {
			if delete(waiting, path.Base(method)); len(waiting) == 0 {
				close(all)
			}
		}
	}
	served := serveIndex(t, "127.0.0.1:0",
		grpc.UnaryInterceptor(func(ctx context.Context, q any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			see(ctx, info.FullMethod)
			return next(ctx, q)
		}),
		grpc.StreamInterceptor(func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			see(stream.Context(), info.FullMethod)
			return next(server, stream)
		}))
	p := running(t, served.addr, "-rpc-timeout", "7m", "-metrics", vllm.URL)
	p.Publish(stored(0))
	matched(t, served.x, index.Scope{Model: "m", Scheme: "engine", BlockSize: 2}, []prefixhash.Key{100}, 1)
	p.Publish(kvtest.Event{Kind: kvtest.Removed, Hashes: []uint64{100}})
	select {
	case <-all:
	case <-time.After(patience):
		mu.Lock()
		defer mu.Unlock()
		t.Fatalf("never called: %v", waiting)
	}
}

// TestStatsFlags: the scraped page is read and reported as the flags require, and
// as often. By the default of -metrics-every, 10 s, four scrapes would take 30 s.
func TestStatsFlags(t *testing.T) {
	var scrapes atomic.Int32
	enough := make(chan struct{})
	vllm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if scrapes.Add(1) == 4 {
			close(enough)
		}
		io.WriteString(w, "vllm:kv_cache_usage_perc{model_name=\"m\"} 0.9\nvllm:cpu_cache_usage_perc{model_name=\"m\"} 0.25\n"+
			"vllm:num_requests_running{model_name=\"m\"} 6\nvllm:num_requests_running{model_name=\"other\"} 1\n")
	}))
	defer vllm.Close()
	reported := make(chan *indexpb.ReplicaStats, 1)
	served := serveIndex(t, "127.0.0.1:0", grpc.UnaryInterceptor(func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if report, ok := q.(*indexpb.ReportCacheStateRequest); ok {
			select {
			case reported <- report.GetStats():
			default:
			}
		}
		return next(ctx, q)
	}))
	running(t, served.addr, "-metrics", vllm.URL, "-metrics-every", "1ms", "-metrics-model", "m", "-cache-tier", "cpu", "-ceiling", "8")
	select {
	case <-enough:
	case <-time.After(patience):
		t.Fatalf("%d scrapes in %v", scrapes.Load(), patience)
	}
	select {
	case s := <-reported:
		if s.GetCacheUsage() != 0.25 || s.GetRunning() != 6 || s.GetPressure() != 0.75 {
			t.Errorf("reported %v, want the cpu's usage, 6 requests, 6 of 8", s)
		}
	case <-time.After(patience):
		t.Fatal("nothing was reported")
	}
}
