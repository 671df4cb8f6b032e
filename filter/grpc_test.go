package filter

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/fleet"
	"warmroute/internal/tokens"
	"warmroute/render/testkit/must"
)

// dial serves s over TCP and returns a client of it.
func dial(t *testing.T, s *Server) extprocv3.ExternalProcessorClient {
	t.Helper()
	lis := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	g := grpc.NewServer()
	extprocv3.RegisterExternalProcessorServer(g, s)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Serve(lis); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	conn := must.Get(grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { conn.Close(); g.Stop(); wg.Wait() })
	return extprocv3.NewExternalProcessorClient(conn)
}

// exchange sends messages on one stream and returns everything answered until
// the server ends the stream.
func exchange(t *testing.T, c extprocv3.ExternalProcessorClient, send ...*request) ([]*response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	st := must.Get(c.Process(ctx))(t)
	for _, m := range send {
		if err := st.Send(m); err != nil {
			break // the server has ended the stream: Recv states how
		}
	}
	_ = st.CloseSend() // likewise
	var out []*response
	for {
		r, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, r)
	}
}

func describeAll(out []*response) string {
	var words []string
	for _, r := range out {
		words = append(words, describe(r))
	}
	return strings.Join(words, ",")
}

// TestSlowBodiesGoOnWithoutAHint: a duplex body that stops half way is let go
// after BodyWait, and its later chunks pass.
func TestSlowBodiesGoOnWithoutAHint(t *testing.T) {
	b := newBench(t, fakeTokens{n: 100}, replica(1))
	client := dial(t, NewServer(b.router, ServerOptions{BodyWait: 20 * time.Millisecond}))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	st := must.Get(client.Process(ctx))(t)
	send := func(m *request) {
		t.Helper()
		must.Do(t, st.Send(m))
	}
	receive := func(want string) {
		t.Helper()
		r := must.Get(st.Recv())(t)
		if got := describe(r); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	send(headers(duplex, "POST", chatPath, false))
	send(body(chat[:20], false))
	receive("headers")
	receive("body(20)")
	send(body(chat[20:], true))
	receive("body(37 end)")
	if got := b.last().Reason; got != decision.ReasonBodySlow {
		t.Errorf("reason %q", got)
	}
}

// TestAbortedStreamsLeaveNoCharge ends streams at every point of a request.
func TestAbortedStreamsLeaveNoCharge(t *testing.T) {
	for _, mode := range []modev3.ProcessingMode_BodySendMode{buffered, duplex} {
		b := newBench(t, fakeTokens{n: 100}, replica(1))
		s := NewServer(b.router, ServerOptions{})
		client := dial(t, s)
		all := []*request{headers(mode, "POST", chatPath, false), body(chat[:20], false), body(chat[20:], true), responseHeaders()}
		if mode == buffered {
			all = []*request{headers(mode, "POST", chatPath, false), body(chat, true), responseHeaders()}
		}
		for n := range len(all) + 1 {
			ctx, cancel := context.WithCancel(context.Background())
			st := must.Get(client.Process(ctx))(t)
			for _, m := range all[:n] {
				must.Do(t, st.Send(m))
			}
			cancel()
			_, _ = st.Recv() // cancelled
		}
		for end := time.Now().Add(10 * time.Second); s.crowd.size() > 0; {
			if time.Now().After(end) {
				t.Fatalf("%v: %d streams stay open", mode, s.crowd.size())
			}
			time.Sleep(time.Millisecond) // the server learns of a cancelled stream from its connection
		}
		b.idle(t)
	}
}

// TestStreamsBeyondTheLimitPass: they are answered without a look at the body,
// and Envoy does not send it where it need not.
func TestStreamsBeyondTheLimitPass(t *testing.T) {
	b := newBench(t, fakeTokens{n: 100}, replica(1))
	s := NewServer(b.router, ServerOptions{MaxStreams: 1})
	client := dial(t, s)
	var other place
	s.crowd.enter(&other, s.o.Load(), time.Now())
	for mode, want := range map[modev3.ProcessingMode_BodySendMode]string{
		buffered: "headers", partial: "headers,body", duplex: "headers,body(57 end)",
	} {
		out, err := exchange(t, client, headers(mode, "POST", chatPath, false), body(chat, true))
		if got := describeAll(out); err != nil || got != want {
			t.Errorf("%v: %s, %v; want %s", mode, got, err, want)
		}
		if got := b.last().Reason; got != decision.ReasonStreams {
			t.Errorf("%v: reason %q", mode, got)
		}
	}
	s.crowd.leave(&other)
	if out, _ := exchange(t, client, headers(buffered, "POST", chatPath, false), body(chat, true)); describeAll(out) != "headers,body+endpoint" {
		t.Errorf("below the limit: %s", describeAll(out))
	}
}

// TestWhatIsNotOursIsNotHeld: in BUFFERED mode the stream of a request without a prompt ends
// with the headers, so that Envoy goes on by itself; in BUFFERED_PARTIAL mode the answer takes
// the body out of the mode; elsewhere chunks go back as they come. Such requests take no place.
func TestWhatIsNotOursIsNotHeld(t *testing.T) {
	b := newBench(t, fakeTokens{n: 100}, replica(1))
	s := NewServer(b.router, ServerOptions{MaxStreams: 1})
	client := dial(t, s)
	for _, route := range [][2]string{
		{"GET", "/v1/realtime?model=m"}, {"GET", "/v1/responses"}, {"CONNECT", "/v1/realtime"}, {"POST", "/v1/audio/transcriptions"}, {"PUT", chatPath}, {"POST", "/v1/embeddings"},
	} {
		for _, mode := range []modev3.ProcessingMode_BodySendMode{buffered, partial, streamed, duplex} {
			st := must.Get(client.Process(t.Context()))(t)
			must.Do(t, st.Send(headers(mode, route[0], route[1], false)))
			r, err := st.Recv()
			if err != nil || describe(r) != "headers" || (r.ModeOverride != nil) != (mode == partial) {
				t.Fatalf("%v %v: %v, %v", mode, route, r, err)
			}
			if n := s.crowd.size(); n > 0 {
				t.Errorf("%v %v: %d requests count", mode, route, n)
			}
			want := map[modev3.ProcessingMode_BodySendMode]string{buffered: "EOF", partial: "body", streamed: "body", duplex: "body(3)"}[mode]
			if mode != buffered {
				must.Do(t, st.Send(body("abc", false)))
			}
			got := ""
			if r, err := st.Recv(); err != nil {
				got = err.Error()
			} else {
				got = describe(r)
			}
			if got != want {
				t.Errorf("%v %v: then %s, want %s", mode, route, got, want)
			}
		}
	}
}

// TestPanicsEndTheirStreamOnly: the stream fails, Envoy passes the request on, the
// process keeps running, and the log does not quote the panic.
func TestPanicsEndTheirStreamOnly(t *testing.T) {
	b := newBench(t, fakeTokens{n: 100}, replica(1))
	var log logBuffer
	s := NewServer(b.router, ServerOptions{AlwaysPick: true, Log: log.logger()})
	client := dial(t, s)
	b.fleet.Break(true)
	_, err := exchange(t, client, headers(buffered, "GET", "/v1/models", true))
	if status.Code(err) != codes.Internal {
		t.Errorf("error %v, want Internal", err)
	}
	b.fleet.Break(false)
	if out, err := exchange(t, client, headers(buffered, "GET", "/v1/models", true)); err != nil || describeAll(out) != "headers+endpoint" {
		t.Errorf("afterwards: %s, %v", describeAll(out), err)
	}
	var m dto.Metric
	if err := b.router.metrics.panics.Write(&m); err != nil || m.GetCounter().GetValue() != 1 {
		t.Errorf("counted %v panics, %v", m.GetCounter().GetValue(), err)
	}
	if text := log.String(); !strings.Contains(text, "decisiontest.(*Fleet).Snapshot") || strings.Contains(text, "secret") {
		t.Errorf("log: %s", text)
	}
}

// TestAlwaysPickNamesAReplica for everything that cannot be judged.
func TestAlwaysPickNamesAReplica(t *testing.T) {
	down := replica(3)
	down.Ready = false
	private := replica(4)
	private.Tenant = "red"
	b := newBench(t, fakeTokens{n: 100, err: errors.New("none")}, replica(1), replica(2), down, private)
	client := dial(t, NewServer(b.router, ServerOptions{AlwaysPick: true, MaxBody: 1000}))
	for name, send := range map[string][]*request{
		"get":          {headers(buffered, "GET", "/v1/models", true)},
		"another":      {headers(duplex, "POST", "/v1/embeddings", false), body("abc", true)},
		"unreadable":   {headers(buffered, "POST", chatPath, false), body("{", true)},
		"too large":    {headers(buffered, "POST", chatPath, false), body(strings.Repeat("x", 2000), true)},
		"unknown":      {headers(duplex, "POST", chatPath, false), body(strings.Replace(chat, `"m"`, `"x"`, 1), true)},
		"streamed":     {headers(streamed, "POST", chatPath, false), body(chat, true)},
		"no token ids": {headers(buffered, "POST", chatPath, false), body(chat, true)},
		"cut":          {headers(partial, "POST", chatPath, false), body(chat[:20], false)},
	} {
		used := map[string]bool{}
		for range 4 {
			out := must.Get(exchange(t, client, send...))(t)
			for _, r := range out {
				checkMetadata(t, r)
			}
			list := strings.Split(destination(out), ",")
			used[list[0]] = true
			for _, addr := range list {
				if addr != "10.0.0.1:8000" && addr != "10.0.0.2:8000" {
					t.Errorf("%s: destination %q", name, addr)
				}
			}
		}
		if len(used) != 2 && name != "no token ids" { // that one goes by load
			t.Errorf("%s: all went to %v", name, used)
		}
	}
	b.idle(t)
}

// destination is the value of the destination header in out, "" without one.
func destination(out []*response) string {
	for _, r := range out {
		for _, c := range []*extprocv3.CommonResponse{r.GetRequestHeaders().GetResponse(), r.GetRequestBody().GetResponse()} {
			for _, h := range c.GetHeaderMutation().GetSetHeaders() {
				if h.GetHeader().GetKey() == envoy.HeaderDestination {
					return string(h.GetHeader().GetRawValue())
				}
			}
		}
	}
	return ""
}

// TestPickerStatuses: the statuses that the endpoint-picker protocol requires
// where no replica can be named, with and without always_pick; the stream holds
// no reservation afterwards.
func TestPickerStatuses(t *testing.T) {
	down := replica(1)
	down.Ready = false
	stranger := subset([]any{"10.9.9.9:1"})
	tests := []struct {
		name   string
		with   *fleet.Replica
		subset *corev3.Metadata
		want   string
	}{
		{"none is ready", down, nil, "immediate503"},
		{"none in the subset", replica(1), stranger, "immediate503"},
		{"none in an empty subset", replica(1), subset([]any{}), "immediate503"},
	}
	for _, tt := range tests {
		for _, always := range []bool{false, true} {
			var asked tokens.Served
			b := newBench(t, fakeTokens{n: 100, of: &asked}, tt.with)
			client := dial(t, NewServer(b.router, ServerOptions{Picker: true, AlwaysPick: always}))
			for mode, first := range map[modev3.ProcessingMode_BodySendMode]string{buffered: "headers,", duplex: ""} {
				h := headers(mode, "POST", chatPath, false)
				h.MetadataContext = tt.subset
				out, err := exchange(t, client, h, body(chat, true))
				if got := describeAll(out); err != nil || got != first+tt.want {
					t.Errorf("%s, %v, always %v: %s, %v", tt.name, mode, always, got, err)
				}
			}
			h := headers(duplex, "POST", chatPath, false)
			h.MetadataContext = tt.subset
			out, err := exchange(t, client, h, body(chat, false), trailers())
			if got := describeAll(out); err != nil || got != tt.want {
				t.Errorf("%s, ended by trailers, always %v: %s, %v", tt.name, always, got, err)
			}
			b.idle(t)
			if meant := tt.subset.GetFilterMetadata()[envoy.MetadataSubset].GetFields()[envoy.KeySubset].GetListValue(); tt.subset != nil && (asked.Subset == nil || len(asked.Subset) != len(meant.GetValues())) {
				t.Errorf("%s: replicas %q may be asked for its token ids", tt.name, asked.Subset)
			}
		}
	}
	s := NewServer(nil, ServerOptions{Picker: true})
	if code, ok := s.o.Load().refusal(decision.ReasonSaturated, ""); !ok || code != 429 {
		t.Errorf("saturated: %v %v", code, ok)
	}
	if _, ok := NewServer(nil, ServerOptions{}).o.Load().refusal(decision.ReasonSaturated, ""); ok {
		t.Error("refused outside picker mode")
	}
}

// TestServedFeedback reads the endpoint that served from either place.
func TestServedFeedback(t *testing.T) {
	text := func(key, v string) *structpb.Struct {
		return &structpb.Struct{Fields: map[string]*structpb.Value{key: structpb.NewStringValue(v)}}
	}
	metadata := responseHeaders()
	metadata.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{envoy.MetadataLB: text(envoy.MetadataServed, "10.0.0.9:8000")}}
	attribute := responseHeaders()
	attribute.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": text(envoy.AttributeUpstream, "10.0.0.9:8000")}
	failed := statusHeaders("503", true) // Envoy's own answer, after it has tried the replica
	failed.MetadataContext = metadata.MetadataContext
	for name, m := range map[string]*request{"metadata": metadata, "attribute": attribute, "none": failed} {
		b := newBench(t, fakeTokens{n: 100}, replica(1))
		must.Get(exchange(t, dial(t, NewServer(b.router, ServerOptions{})), headers(buffered, "POST", chatPath, false), body(chat, true), m))(t)
		want := 1.
		if name == "none" {
			want = 0
		}
		var got dto.Metric
		if err := b.router.metrics.elsewhere.Write(&got); err != nil || got.GetCounter().GetValue() != want {
			t.Errorf("%s: served elsewhere %v times, want %v", name, got.GetCounter().GetValue(), want)
		}
	}
}

// TestSubsetIsLatchedAtHeaders: in every form, the first message with a subset
// counts, and later ones change nothing.
func TestSubsetIsLatchedAtHeaders(t *testing.T) {
	for name, hint := range map[string]any{
		"list":        []any{"10.0.0.2:8000"},
		"string":      "10.0.0.2:8000",
		"ip":          "10.0.0.2",
		"list of two": []any{"10.9.9.9:1", "10.0.0.2"},
		"commas":      "10.9.9.9:1, 10.0.0.2:8000",
	} {
		for _, mode := range []modev3.ProcessingMode_BodySendMode{buffered, partial, duplex} {
			for _, later := range []*corev3.Metadata{nil, {}, subset(hint), subset([]any{"10.0.0.1:8000"})} {
				b := newBench(t, fakeTokens{n: 100}, replica(1), replica(2), replica(3))
				b.holds("10.0.0.1:8000", 0, 6)
				first, second := headers(mode, "POST", chatPath, false), body(chat, true)
				first.MetadataContext, second.MetadataContext = subset(hint), later
				out, err := exchange(t, dial(t, NewServer(b.router, ServerOptions{})), first, second)
				if got := destination(out); err != nil || got != "10.0.0.2:8000" {
					t.Errorf("%s, %v, then %v: destination %q, %v", name, mode, later, got, err)
				}
			}
		}
	}
}

func TestOnlyTheFirstTokensAreLookedUp(t *testing.T) {
	b := newBench(t, fakeTokens{n: maxLookup + 1000}, replica(1))
	b.holds("10.0.0.1:8000", 0, 1<<30)
	b.route(query())
	if r := b.last(); r.Blocks != maxLookup/blockSize || r.Predicted != maxLookup || r.Tokens != maxLookup+1000 {
		t.Errorf("record %+v", r)
	}
}

// logBuffer is a log to look at.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
