package tracing

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"warmroute/filter"
	"warmroute/internal/certs"
	"warmroute/internal/certs/certstest"
	"warmroute/internal/decision"
	"warmroute/render/testkit/must"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// fake is a collector that answers with answer.
type fake struct {
	collector.UnimplementedTraceServiceServer
	got    chan *spans.Span
	answer func(context.Context) error
}

func (f *fake) Export(ctx context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	if err := f.answer(ctx); err != nil {
		return nil, err
	}
	for _, rs := range r.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				f.got <- s
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func serve(t *testing.T, f *fake, options ...grpc.ServerOption) (addr string) {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	g := grpc.NewServer(options...)
	collector.RegisterTraceServiceServer(g, f)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return l.Addr().String()
}

// tracer runs a Tracer; stop ends it and waits.
func tracer(t *testing.T, o Options, log *slog.Logger) (tr *Tracer, stop func()) {
	t.Helper()
	tr = must.Get(New(o, "v1", prometheus.NewRegistry(), log))(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tr.Run(ctx) }()
	return tr, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func decided(id string) *filter.Traced {
	at := time.Unix(1_700_000_000, 0)
	return &filter.Traced{Parent: parent, Record: &decision.Record{
		Subject: decision.Subject{ID: id, At: at, Took: 90 * time.Microsecond, Route: "/v1/chat/completions", Model: "m"}, Reason: decision.ReasonWarm,
		Prompted: decision.Prompted{Source: "local", Tokens: 1000}, Choice: decision.Choice{Predicted: 640, Chosen: "10.0.0.3:8000,10.0.0.1:8000"},
	}, Phases: [4]filter.Phase{{Name: "read", End: at.Add(10 * time.Microsecond)}, {Name: "tokenize"}, {Name: "lookup", End: at.Add(50 * time.Microsecond)}, {Name: "decide", End: at.Add(90 * time.Microsecond)}}}
}

// TestSpanOfADecision: under the request's own span, with its names and numbers,
// at its times.
func TestSpanOfADecision(t *testing.T) {
	f := &fake{got: make(chan *spans.Span, 10), answer: func(context.Context) error { return nil }}
	o := Options{}
	o.Endpoint = serve(t, f)
	tr, stop := tracer(t, o, slog.New(slog.DiscardHandler))
	tr.Decided(decided("one"))
	for _, unsampled := range []string{strings.TrimSuffix(parent, "01") + "00", "00-x-y-01", ""} {
		d := decided("none")
		d.Parent = unsampled
		tr.Decided(d)
	}
	stop() // it sends the waiting spans
	s := <-f.got
	if hex.EncodeToString(s.TraceId) != "0af7651916cd43dd8448eb211c80319c" || hex.EncodeToString(s.ParentSpanId) != "b7ad6b7169203331" || s.Name != "route" {
		t.Errorf("span %q of %x under %x", s.Name, s.TraceId, s.ParentSpanId)
	}
	if start, took := s.StartTimeUnixNano, s.EndTimeUnixNano-s.StartTimeUnixNano; start != 1_700_000_000e9 || took != 90_000 {
		t.Errorf("from %d for %d ns", start, took)
	}
	got := map[string]string{}
	for _, a := range s.Attributes {
		got[a.Key] = strings.Trim(strings.SplitN(a.Value.String(), ":", 2)[1], `"`)
	}
	for key, want := range map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": "1000", "gen_ai.usage.cache_read.input_tokens": "640",
		"warmroute.reason": "warm", "warmroute.request_id": "one", "server.address": "10.0.0.3", "server.port": "8000",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	var events []string
	for _, e := range s.Events {
		events = append(events, e.Name)
	}
	if strings.Join(events, " ") != "read lookup decide" {
		t.Errorf("events %v", events)
	}
	if len(f.got) != 0 {
		t.Error("a request whose trace is not sampled has a span")
	}
	if made, sent := testutil.ToFloat64(tr.made), testutil.ToFloat64(tr.spans.WithLabelValues("sent")); made != 1 || sent != 1 {
		t.Errorf("%v made, %v sent", made, sent)
	}
}

// TestAuthoritiesOfTheCollectorAreRenewed: their file is read again for each connection.
func TestAuthoritiesOfTheCollectorAreRenewed(t *testing.T) {
	f := &fake{got: make(chan *spans.Span, 10), answer: func(context.Context) error { return nil }}
	former, now := certstest.New(t), certstest.New(t)
	own := now.Issue("collector")
	pair := must.Get(tls.LoadX509KeyPair(own.CertFile, own.KeyFile))(t)
	o := Options{Endpoint: serve(t, f, grpc.Creds(credentials.NewServerTLSFromCert(&pair)))}
	o.TLS = certs.ClientOptions{Enabled: true, CAFile: former.CAFile, ServerName: "localhost"}
	tr, stop := tracer(t, o, slog.New(slog.DiscardHandler))
	must.Do(t, os.WriteFile(former.CAFile, must.Get(os.ReadFile(now.CAFile))(t), 0o600))
	tr.Decided(decided("one"))
	stop()
	if len(f.got) != 1 {
		t.Errorf("%d spans have come", len(f.got))
	}
}

// TestCollectorThatDoesNotTake: far more decisions than the queue holds are
// finished whether the collector is dead or never answers; Run ends, and the error
// is logged once.
func TestCollectorThatDoesNotTake(t *testing.T) {
	closed := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	closed.Close()
	stuck := serve(t, &fake{answer: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
	for name, endpoint := range map[string]string{"dead": closed.Addr().String(), "stuck": stuck} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			o := Options{}
			o.Endpoint, o.timeout, o.queue = endpoint, 100*time.Millisecond, 64
			tr, stop := tracer(t, o, slog.New(slog.NewTextHandler(&text, nil)))
			d := decided("x")
			for range 100 * o.queue {
				tr.Decided(d)
			}
			stop()
			if failed, sent := testutil.ToFloat64(tr.spans.WithLabelValues("failed")), testutil.ToFloat64(tr.spans.WithLabelValues("sent")); failed == 0 || sent != 0 {
				t.Errorf("%v failed, %v sent", failed, sent)
			}
			if said := strings.Count(text.String(), "does not accept spans"); said != 1 {
				t.Errorf("said %d times:\n%s", said, text.String())
			}
		})
	}
}

func TestOptionsAreValidated(t *testing.T) {
	if err := (Options{}).Validate(); err != nil {
		t.Error(err)
	}
	bad := Options{Endpoint: "collector"}
	bad.TLS.CAFile = "x"
	err := bad.Validate()
	for _, field := range []string{"endpoint: ", "tls.enabled: "} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("no %q in %v", field, err)
		}
	}
}

// TestSpanOfALeg: the wait for a prefill on another replica is a span beside the decision's.
func TestSpanOfALeg(t *testing.T) {
	f := &fake{got: make(chan *spans.Span, 10), answer: func(context.Context) error { return nil }}
	o := Options{}
	o.Endpoint = serve(t, f)
	tr, stop := tracer(t, o, slog.New(slog.DiscardHandler))
	at := time.Unix(1_700_000_000, 0)
	tr.Prefilled(&filter.TracedLeg{Parent: parent, Replica: "10.0.0.1:8000", ID: "one", Reason: decision.SplitDone, Start: at, End: at.Add(time.Second)})
	tr.Prefilled(&filter.TracedLeg{Parent: "00-x-y-01"})
	stop()
	s := <-f.got
	if hex.EncodeToString(s.ParentSpanId) != "b7ad6b7169203331" || s.Name != "prefill" || s.EndTimeUnixNano-s.StartTimeUnixNano != uint64(time.Second) || len(s.Attributes) != 3 || len(f.got) > 0 {
		t.Errorf("span %v", s)
	}
}
