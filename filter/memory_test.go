package filter

import (
	"context"
	"io"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"warmroute/internal/decision"
	"warmroute/internal/extprocwire"
	"warmroute/internal/tokens"
	"warmroute/render/testkit/must"
	"warmroute/render/testkit/race"
)

// wire is a stream on which messages come as bytes and answers go as bytes.
type wire struct {
	extprocv3.ExternalProcessor_ProcessServer
	codec    extprocwire.Codec
	messages [][]byte
	next     int
}

func newWire(t testing.TB, messages ...*request) *wire {
	w := &wire{codec: extprocwire.NewCodec()}
	for _, m := range messages {
		b := must.Get(proto.Marshal(m))(t)
		w.messages = append(w.messages, b)
	}
	return w
}

func (w *wire) Context() context.Context { return context.Background() }

func (w *wire) RecvMsg(m any) error {
	if w.next == len(w.messages) {
		w.next = 0
		return io.EOF
	}
	w.next++
	return w.codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(w.messages[w.next-1])}, m)
}

func (w *wire) Send(r *response) error {
	_, err := w.codec.Marshal(r)
	return err
}

// TestAStreamAllocatesLittle: messages and answers are in memory that streams
// pass on. A stream still allocates itself, its messages' bytes and the share of
// a decision with a short prompt (TestRouteAllocates); a new allocation must be
// seen here first.
func TestAStreamAllocatesLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector drops pooled memory at random")
	}
	const most = 24
	b := newBench(t, &readyTokens{tokens.Result{Source: tokens.FromBody, Prompts: []tokens.Prompt{{Tokens: make([]uint32, 100)}}}}, replica(1), replica(2))
	s := NewServer(b.router, ServerOptions{})
	w := newWire(t, headers(buffered, "POST", chatPath, false), body(chat, true))
	one := func() {
		if err := s.Process(w); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		one()
	}
	if b.last().Chosen == "" {
		t.Fatalf("no hint: %+v", b.last())
	}
	if n := leastAllocations(one); n > most {
		t.Errorf("%v allocations a stream, at most %d are allowed", n, most)
	} else {
		t.Logf("%v allocations a stream", n)
	}
}

// TestHintsInUsedMemoryAreWhole: an answer has nothing of the one before.
func TestHintsInUsedMemoryAreWhole(t *testing.T) {
	long := decision.Decision{Choice: decision.Choice{Chosen: "10.0.0.1:8000,10.0.0.2:8000", Predicted: 5}, Rank: "3", Model: "m", Tokens: 7, Reason: decision.ReasonWarm}
	h := new(hint)
	for _, d := range []decision.Decision{
		long, {Choice: decision.Choice{Chosen: "b:1"}, Reason: decision.ReasonCold}, long, {Model: "n", Reason: decision.ReasonSaturated}, {Reason: decision.ReasonMode}, long,
	} {
		if want, got := new(hint).ofHeaders(&d), h.ofHeaders(&d); !proto.Equal(want, got) {
			t.Errorf("headers: %v, want %v", got, want)
		}
		if want, got := new(hint).ofBody(&d), h.ofBody(&d); !proto.Equal(want, got) {
			t.Errorf("body: %v, want %v", got, want)
		}
	}
}

// fragile is a stream whose first answer cannot be sent without a panic.
type fragile struct {
	breaking
	sent []*response
}

func (f *fragile) Send(r *response) error {
	if f.sent = append(f.sent, r); len(f.sent) == 1 {
		panic("defect")
	}
	return nil
}

// TestADefectAfterTheWaitForABodyEndsTheRequest: it would get no other answer.
func TestADefectAfterTheWaitForABodyEndsTheRequest(t *testing.T) {
	b := newBench(t, fakeTokens{n: 100}, replica(1))
	s := NewServer(b.router, ServerOptions{})
	st := s.stream(duplex, new(hint))
	st.step(context.Background(), headers(duplex, "POST", chatPath, false), nil)
	ss := new(fragile)
	s.expire(ss, st)
	if len(ss.sent) != 2 || ss.sent[1].GetImmediateResponse().GetStatus().GetCode() != 500 {
		t.Errorf("answered %v", ss.sent)
	}
	st.close()
	s.expire(ss, st)
	if len(ss.sent) != 2 {
		t.Error("a stream that has ended was answered")
	}
}
