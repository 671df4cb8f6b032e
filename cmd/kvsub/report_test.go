package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
	"google.golang.org/grpc"

	"warmroute/index"
	"warmroute/index/indexpb"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/internal/testenv"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// stamped is a message of the contract that names whose blocks it is about.
type stamped interface {
	GetReplicaId() string
	GetRank() int32
	GetTenant() string
	GetModel() string
	GetHashScheme() string
}

// firstClear is the kind of a sidecar's first clear, which is of the whole rank.
const firstClear = "first ALL_CLEARED"

// stamps collects the messages that an index receives, by their types.
type stamps struct {
	mu   sync.Mutex
	seen map[string]stamped
}

func (s *stamps) note(m any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := m.(type) {
	case *indexpb.PublishEventRequest:
		kind := m.GetType().String()
		if s.seen[firstClear] == nil && kind == "ALL_CLEARED" {
			kind = firstClear
		}
		s.seen[kind] = m
	case *indexpb.ReportCacheStateRequest:
		if m.GetStats() != nil {
			s.seen["stats"] = m
		} else {
			s.seen["blocks"] = m
		}
	}
}

func (s *stamps) has(kinds []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kinds {
		if s.seen[k] == nil {
			return false
		}
	}
	return true
}

// stream records the messages that it receives.
type stream struct {
	grpc.ServerStream
	to *stamps
}

func (s stream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.to.note(m)
	}
	return err
}

// TestReportsNameTheirTenantModelAndScheme: every message to the index names the
// replica, its rank, tenant and model, and the scheme where it is about blocks. Only the first
// clear names the rank alone.
func TestReportsNameTheirTenantModelAndScheme(t *testing.T) {
	vllm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "vllm:num_requests_running 5\n") }))
	defer vllm.Close()
	got := &stamps{seen: map[string]stamped{}}
	served := serveIndex(t, "127.0.0.1:0",
		grpc.UnaryInterceptor(func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			got.note(q)
			return next(ctx, q)
		}),
		grpc.StreamInterceptor(func(server any, in grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(server, stream{in, got})
		}))
	p := running(t, served.addr, "-metrics", vllm.URL, "-tenant", "blue", "-rank", "3", "-hash-scheme", "engine:x")
	p.Publish(stored(0))
	matched(t, served.x, index.Scope{Tenant: "blue", Model: "m", Scheme: "engine:x", BlockSize: 2}, []prefixhash.Key{100}, 1)
	p.Publish(kvtest.Event{Kind: kvtest.Removed, Hashes: []uint64{100}})
	await := func(kinds ...string) {
		t.Helper()
		testenv.Until(t, patience, fmt.Sprintf("%v come", kinds), func() bool { return got.has(kinds) }, func() any {
			got.mu.Lock()
			defer got.mu.Unlock()
			return slices.Collect(maps.Keys(got.seen))
		})
	}
	await(firstClear, "blocks", "stats", "PREFIX_EVICTED", "REPLICA_UPDATED")
	p.Publish(kvtest.Event{Kind: kvtest.Cleared})
	await("ALL_CLEARED")
	got.mu.Lock()
	defer got.mu.Unlock()
	if first := got.seen[firstClear]; first.GetReplicaId() != "10.0.0.1:8000" || first.GetRank() != 3 || first.GetTenant() != "" || first.GetModel() != "" || first.GetHashScheme() != "" {
		t.Errorf("the first clear is %v", first)
	}
	delete(got.seen, firstClear)
	for kind, m := range got.seen {
		if m.GetReplicaId() != "10.0.0.1:8000" || m.GetRank() != 3 || m.GetTenant() != "blue" || m.GetModel() != "m" {
			t.Errorf("%s names %q, rank %d, tenant %q, model %q", kind, m.GetReplicaId(), m.GetRank(), m.GetTenant(), m.GetModel())
		}
		aboutBlocks := kind == "blocks" || kind == "stats" || kind == "PREFIX_EVICTED"
		if want := map[bool]string{true: "engine:x"}[aboutBlocks]; m.GetHashScheme() != want {
			t.Errorf("%s names the scheme %q, want %q", kind, m.GetHashScheme(), want)
		}
	}
}

// TestTopicIsSubscribedToWhenReporting: the publisher receives the prefix of -topic.
func TestTopicIsSubscribedToWhenReporting(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	testenv.Run(t, func(ctx context.Context) error {
		return run(ctx, []string{"-endpoint", "tcp://" + l.Addr().String(), "-index", "127.0.0.1:1", "-replica", "10.0.0.1:8000", "-model", "m",
			"-hash-scheme", "engine", "-rpc-timeout", "1ms", "-topic", "kv@10.0.0.1@m"}, io.Discard, io.Discard)
	})
	c := must.Get(l.Accept())(t)
	defer c.Close()
	z := must.Get(zmq4.Open(c, null.Security(), zmq4.Pub, nil, true, nil))(t)
	m := must.Get(z.RecvMsg())(t)
	if len(m.Frames) != 1 || string(m.Frames[0]) != "\x01kv@10.0.0.1@m" {
		t.Errorf("subscribed with %q", m.Frames)
	}
}

// TestReceivedEventsAreReportedAtTheEnd: the subscription applies the batches that
// have been received, for as long as one call of the index may take.
func TestReceivedEventsAreReportedAtTheEnd(t *testing.T) {
	o := must.Get(parse(reportingArgs("-rpc-timeout", "7m"), io.Discard))(t)
	if s := o.subscription(slog.New(slog.DiscardHandler)); s.DrainWithin != 7*time.Minute || s.RetryAfter != 200*time.Millisecond {
		t.Errorf("at the end %v for received batches, between connections %v", s.DrainWithin, s.RetryAfter)
	}
}

// runs is a runner.
type runs func(context.Context) error

func (f runs) Run(ctx context.Context) error { return f(ctx) }

// TestTheReporterOutlivesTheSubscriber: it is told to end when the subscriber has applied its
// last batch, and the sidecar ends when the last report is through.
func TestTheReporterOutlivesTheSubscriber(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended, applied, reported := make(chan struct{}), false, false
	reporting := make(chan context.Context, 1)
	subscriber := runs(func(ctx context.Context) error {
		<-ctx.Done()
		<-ended
		if err := (<-reporting).Err(); err != nil {
			t.Errorf("while batches are applied, the reporter is told: %v", err)
		}
		applied = true
		return nil
	})
	reporter := runs(func(ctx context.Context) error {
		reporting <- ctx
		<-ctx.Done()
		reported = applied
		return nil
	})
	go func() {
		cancel()
		close(ended)
	}()
	if err := outlived(ctx, subscriber, reporter, slog.New(slog.DiscardHandler)); err != nil || !reported {
		t.Errorf("error %v, a report after the last batch: %v", err, reported)
	}
}

// TestScrapesAreBounded: a page without end and a replica that does not answer
// each cost a scrape its bound, and an error.
func TestScrapesAreBounded(t *testing.T) {
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		line := []byte(fmt.Sprintf("vllm:num_requests_running{model_name=%q} 1\n", strings.Repeat("m", 1<<10)))
		for {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	p, err := scrape(t.Context(), options{metrics: endless.URL, patience: 20 * time.Second})
	if !errors.Is(err, errPageTooLarge) || p.running != 0 {
		t.Errorf("of a page without end %v requests are read, error %v", p.running, err)
	}

	hung := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hung }))
	defer silent.Close()
	defer close(hung)
	if _, err := scrape(t.Context(), options{metrics: silent.URL, patience: 10 * time.Millisecond}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a replica that does not answer: %v", err)
	}
}
