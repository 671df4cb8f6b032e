package filter

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/decisiontest"
	"warmroute/internal/decision/policy"
	"warmroute/internal/load"
	"warmroute/internal/tokens"
	"warmroute/render/openai"
)

// statusHeaders are response headers with a status, as Envoy sends them.
func statusHeaders(status string, end bool) *request {
	m := responseHeaders()
	h := m.GetResponseHeaders()
	h.Headers = &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: ":status", RawValue: []byte(status)}}}
	h.EndOfStream = end
	return m
}

// TestSpeculationEndsWithABrokenResponse follows streams to their end, over a
// real index: the blocks that a request was expected to leave cached are withdrawn
// where no event has confirmed them, unless its response ended normally, or Envoy
// sends nothing of the response.
func TestSpeculationEndsWithABrokenResponse(t *testing.T) {
	const none = modev3.ProcessingMode_NONE
	ok, chunk, last := statusHeaders("200", false), responseBody("data: {}", false), responseBody("", true)
	for _, tt := range []struct {
		name      string
		mode      modev3.ProcessingMode_BodySendMode
		response  modev3.ProcessingMode_BodySendMode
		responses []*request
		stays     bool
	}{
		{"no response phase", buffered, none, nil, false},
		{"headers alone", buffered, none, []*request{ok}, false},
		{"headers that are all", buffered, none, []*request{statusHeaders("200", true)}, true},
		{"an error", buffered, none, []*request{statusHeaders("500", true)}, false},
		{"streamed, whole", buffered, streamed, []*request{ok, chunk, last}, true},
		{"streamed, broken off", buffered, streamed, []*request{ok, chunk}, false},
		{"streamed, ended by trailers", buffered, streamed, []*request{ok, chunk, responseTrailers()}, true},
		{"buffered, whole", buffered, buffered, []*request{ok, responseBody("{}", true)}, true},
		{"buffered, broken off", buffered, buffered, []*request{ok}, false},
		{"partial, no response phase", partial, none, nil, false},
		{"partial, cut by Envoy", partial, partial, []*request{ok, chunk}, false},
		{"duplex, no response phase", duplex, none, nil, true}, // Envoy ends the stream when the request is through
		{"duplex, headers alone", duplex, none, []*request{ok}, false},
		{"duplex, whole", duplex, duplex, []*request{ok, chunk, last}, true},
		{"duplex, broken off", duplex, duplex, []*request{ok, chunk}, false},
		{"duplex, ended by trailers", duplex, none, []*request{ok, responseTrailers()}, true},
	} {
		now := time.Unix(1_700_000_000, 0)
		clock := func() time.Time { return now }
		x := index.New(index.Options{Now: clock})
		snap := decisiontest.NewFleet(replica(1), replica(2))
		d := decision.New(snap, x, load.NewLedger(clock), newBook(t, policy.Config{}), decision.Options{Now: clock})
		router := NewRouter(d, fakeTokens{n: 1000}, decision.NewRing(8), NewMetrics(prometheus.NewRegistry()), RouterOptions{TokenBudget: time.Minute})
		st := NewServer(router, ServerOptions{}).stream(tt.mode, new(hint))
		h := headers(tt.mode, "POST", chatPath, false)
		h.ProtocolConfig.ResponseBodyMode = tt.response
		for _, m := range append([]*request{h, body(chat, true)}, tt.responses...) {
			st.step(context.Background(), m, nil)
		}
		now = now.Add(50 * time.Millisecond) // no failure for coming too soon
		st.close()
		rec := router.Explain(context.Background(), query())
		sent := st.d.First()
		at := slices.IndexFunc(rec.Candidates, func(c decision.CandidateRecord) bool { return c.Replica == sent })
		if at < 0 {
			t.Fatalf("%s: %q is no candidate", tt.name, sent)
		}
		if got := rec.Candidates[at].State.Match.Matched() > 0; got != tt.stays {
			t.Errorf("%s: counts as cached: %v, want %v", tt.name, got, tt.stays)
		}
		x.Close()
	}
}

// leaving is a source of tokens during which the client leaves.
type leaving struct{ cancel context.CancelFunc }

func (l leaving) Tokens(ctx context.Context, _ *openai.Request, _ tokens.Served) (tokens.Result, error) {
	l.cancel()
	<-ctx.Done()
	return tokens.Result{}, ctx.Err()
}

// TestClientsThatLeaveDuringTheDecision: no replica is named or charged for them,
// whether they leave before the token ids are requested or meanwhile, also where
// every request gets a replica.
func TestClientsThatLeaveDuringTheDecision(t *testing.T) {
	for _, pick := range []bool{false, true} {
		for _, before := range []bool{false, true} {
			ctx, cancel := context.WithCancel(context.Background())
			b := newBench(t, leaving{cancel}, replica(1))
			if before {
				cancel()
			}
			st := NewServer(b.router, ServerOptions{AlwaysPick: pick}).stream(buffered, new(hint))
			st.step(ctx, headers(buffered, "POST", chatPath, false), nil)
			st.step(ctx, body(chat, true), nil)
			if st.d.Chosen != "" || st.d.Reservation != nil {
				t.Errorf("pick %v, before %v: decided %+v", pick, before, st.d)
			}
			b.idle(t)
			st.close()
			b.reasoned(t, decision.ReasonUnfinished)
		}
	}
}

// breaking is a stream whose second message cannot be received without a panic.
type breaking struct {
	extprocv3.ExternalProcessor_ProcessServer
	first *request
	last  any // the value that it panics with; nil: it ends
}

func (b *breaking) RecvMsg(m any) error {
	if first := b.first; first != nil {
		b.first = nil
		proto.Merge(m.(proto.Message), first)
		return nil
	}
	if b.last != nil {
		panic(b.last)
	}
	return io.EOF
}

func (b *breaking) Send(*response) error     { return nil }
func (b *breaking) Context() context.Context { return context.Background() }

// TestStreamsThatEndEarlyHaveAReason, and a defect's is another than a client's.
func TestStreamsThatEndEarlyHaveAReason(t *testing.T) {
	for want, last := range map[decision.Reason]any{decision.ReasonUnfinished: nil, decision.ReasonPanic: "defect"} {
		b := newBench(t, fakeTokens{n: 100}, replica(1))
		err := NewServer(b.router, ServerOptions{}).Process(&breaking{first: headers(buffered, "POST", chatPath, false), last: last})
		if (status.Code(err) == codes.Internal) != (want == decision.ReasonPanic) {
			t.Errorf("%s: %v", want, err)
		}
		b.reasoned(t, want)
	}
}
