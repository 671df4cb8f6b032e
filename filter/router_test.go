package filter

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/tokens"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

func query() *Query { return &Query{Route: openai.Chat, Body: []byte(chat)} }

func (b *bench) route(q *Query) decision.Decision { return b.router.Route(context.Background(), q) }

func (b *bench) last() decision.Record { return b.ring.Last(1, nil)[0] }

// twoDays gives a prompt of two readings.
type twoDays struct{ first, other int }

func (d twoDays) Tokens(context.Context, *openai.Request, tokens.Served) (tokens.Result, error) {
	of := func(n int) []tokens.Prompt { return []tokens.Prompt{{Tokens: make([]uint32, n)}} }
	return tokens.Result{Prompts: of(d.first), Other: of(d.other), Source: tokens.FromInProcess}, nil
}

// TestBothReadingsAreLookedUp: of a prompt whose date may be one of two, the reading of which more is
// cached is placed, and it is computed where it is answered: two replicas may render it on two days.
func TestBothReadingsAreLookedUp(t *testing.T) {
	for _, d := range []twoDays{{100, 500}, {500, 100}} {
		b := newBench(t, d, replica(1), replica(2))
		b.holds("10.0.0.2:8000", 0, 20)
		q := query()
		q.MaySplit = true
		if got := b.route(q); got.Tokens != 500 || got.Predicted != 320 || !strings.HasPrefix(got.Chosen, "10.0.0.2:8000") || b.last().Split.Reason != decision.SplitOff {
			t.Errorf("%+v: %+v, split %s", d, got, b.last().Split.Reason)
		}
	}
}

func TestReasonsOfPicks(t *testing.T) {
	b := newBench(t, fakeTokens{n: 1000}, replica(1), replica(2))
	breaks := func(d decision.Decision) { // and leaves nothing
		d.Reservation.Ended(false)
		d.Reservation.Release()
	}
	d := b.route(query())
	if d.Reason != decision.ReasonCold || d.Chosen == "" {
		t.Errorf("nothing cached: %+v", d)
	}
	breaks(d)
	b.holds("10.0.0.1:8000", 0, 20)
	b.charge("10.0.0.1:8000", 1, 9*time.Second)
	if d = b.route(query()); d.Reason != decision.ReasonMoved || !strings.HasPrefix(d.Chosen, "10.0.0.2:8000") {
		t.Errorf("the warm one is busy: %+v", d)
	}
	breaks(d)
	b.charge("10.0.0.1:8000", 100, 0)
	if d = b.route(query()); d.Reason != decision.ReasonGuarded || !strings.HasPrefix(d.Chosen, "10.0.0.2:8000") {
		t.Errorf("the warm one is beyond the guard: %+v", d)
	}
	breaks(d)
	must.Get(b.book.Patch("", []byte(`{"hint_when_cold": false}`)))(t)
	clear(b.index.blocks)
	if d := b.route(query()); d.Reason != decision.ReasonNoMatch || d.Chosen != "" || d.Reservation != nil {
		t.Errorf("cold hints are off: %+v", d)
	}
}

func TestNoHintHasItsOwnReason(t *testing.T) {
	notReady := replica(1)
	notReady.Ready = false
	silent := replica(1) // it has never answered
	silent.Ready, silent.Models = false, nil
	tests := map[string]struct {
		tok   tokens.Source
		fleet *fleet.Replica
		body  string
		want  decision.Reason
	}{
		"not ready":      {fakeTokens{n: 100}, notReady, chat, decision.ReasonNotReady},
		"never ready":    {fakeTokens{n: 100}, silent, chat, decision.ReasonNotReady},
		"no tokens":      {fakeTokens{err: tokens.ErrNone}, replica(1), chat, decision.ReasonNoTokens},
		"too slow":       {fakeTokens{err: fmt.Errorf("render: %w", context.DeadlineExceeded)}, replica(1), chat, decision.ReasonBudget},
		"not asked":      {fakeTokens{err: tokens.ErrTooSlow}, replica(1), chat, decision.ReasonRenderSlow},
		"duplicate key":  {fakeTokens{n: 100}, replica(1), `{"model":"m","messages":[],"a":1,"a":2}`, "duplicate_key"},
		"repeated field": {fakeTokens{n: 100}, replica(1), `{"model":"m","model":"m","messages":[]}`, "repeated_field"},
		"lone surrogate": {fakeTokens{n: 100}, replica(1), `{"model":"m","messages":[{"role":"user","content":"\ud800"}]}`, "lone_surrogate"},
		"compressed":     {fakeTokens{n: 100}, replica(1), "\x1f\x8b\x08\x00\x00", decision.ReasonEncoded},
		"panic":          {panicking{}, replica(1), chat, decision.ReasonPanic},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tt.tok, tt.fleet)
			d := b.route(&Query{Route: openai.Chat, Body: []byte(tt.body), Encoded: name == "compressed"})
			if d.Reason != tt.want || d.Chosen != "" || d.Reservation != nil {
				t.Errorf("decision %+v, want %s", d, tt.want)
			}
			if b.last().Reason != tt.want {
				t.Errorf("recorded as %s", b.last().Reason)
			}
		})
	}
}

type panicking struct{}

func (panicking) Tokens(context.Context, *openai.Request, tokens.Served) (tokens.Result, error) {
	panic("secret prompt text")
}

// TestAnEstimateStaysWithinTheContext: where there are no token ids, bytes are
// counted, and an image in a request has many. It is charged as no more than
// the model can take.
func TestAnEstimateStaysWithinTheContext(t *testing.T) {
	body := `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
		strings.Repeat("iVBORw0K", 200_000) + `"}}]}]}`
	for most, want := range map[int]int{0: 400_000, 4096: 4096} {
		rep := replica(1)
		rep.Models[0].MaxLen = most
		b := newBench(t, fakeTokens{err: tokens.ErrNone}, rep)
		d := b.route(&Query{Route: openai.Chat, Body: []byte(body)})
		if d.Reservation == nil || b.last().Tokens/1000 != want/1000 {
			t.Errorf("context %d: %+v, estimated at %d tokens, want %d", most, d, b.last().Tokens, want)
		}
		if pending := b.ledger.Of(index.Holder{Replica: rep.Addr}).Pending(); most > 0 && pending > 1 {
			t.Errorf("context %d: %.1f s of prefill are expected of it", most, pending)
		}
	}
}

func TestDisabledIsANoOp(t *testing.T) {
	off := policy.NameDisabled
	for name, c := range map[string]policy.Config{
		"everywhere": {Overrides: policy.Overrides{RoutePolicy: &off}},
		"one model":  {Models: map[string]policy.Overrides{"m": {RoutePolicy: &off}}},
	} {
		b := newBench(t, panicking{}, replica(1)) // whose tokens must not be requested
		must.Get(b.book.Replace(c))(t)
		d := b.route(query())
		if d.Reason != decision.ReasonDisabled || d.Chosen != "" || d.Reservation != nil {
			t.Errorf("%s: %+v", name, d)
		}
		for h, l := range b.ledger.All() {
			if l.InFlight() != 0 {
				t.Errorf("%s: %v was charged", name, h)
			}
		}
	}
	b := newBench(t, fakeTokens{n: 100}, replica(1))
	must.Get(b.book.Replace(policy.Config{Overrides: policy.Overrides{RoutePolicy: &off}}))(t)
	q := query()
	q.Body = []byte(`{"this is`) // nothing is parsed, so there is no error
	if d := b.route(q); d.Reason != decision.ReasonDisabled {
		t.Errorf("with everything disabled a body was read: %+v", d)
	}
}

// TestAnswersOfARequestWeigh: what a body asks for reaches the account of its replica.
func TestAnswersOfARequestWeigh(t *testing.T) {
	for name, tt := range map[string]struct {
		path, body string
		inFlight   int
	}{
		"chat":          {chatPath, `{"model":"m","n":8,"messages":[]}`, 8},
		"best of":       {"/v1/completions", `{"model":"m","best_of":3,"n":2,"prompt":"x"}`, 3},
		"as text":       {chatPath, `{"model":"m","n":"8","messages":[]}`, 8}, // vLLM takes it
		"no number":     {chatPath, `{"model":"m","n":"many","messages":[]}`, 1},
		"none":          {chatPath, `{"model":"m","n":0,"messages":[]}`, 1},
		"another route": {"/v1/responses", `{"model":"m","n":8,"input":"x"}`, 1},
	} {
		b := newBench(t, fakeTokens{n: 100}, replica(1))
		st := NewServer(b.router, ServerOptions{}).stream(buffered, new(hint))
		st.step(context.Background(), headers(buffered, "POST", tt.path, false), nil)
		st.step(context.Background(), body(tt.body, true), nil)
		a := b.ledger.Of(index.Holder{Replica: "10.0.0.1:8000"})
		if a.InFlight() != tt.inFlight || a.Awaiting() != 1 {
			t.Errorf("%s: %d in flight, %d await their first token; want %d and 1 (%s)", name, a.InFlight(), a.Awaiting(), tt.inFlight, st.d.Reason)
		}
		st.close()
		b.idle(t)
	}
}
