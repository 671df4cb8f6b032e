package filter

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/metadata"

	"warmroute/envoy"
	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/history"
	"warmroute/internal/decision/policy"
	"warmroute/internal/sessions"
	"warmroute/prefixhash"
)

// granting is the context of a stream of an Envoy that waits for held requests.
func granting(ctx context.Context, millis string) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs(envoy.KeyHold, millis))
}

func TestWhoMayBeHeld(t *testing.T) {
	on := ServerOptions{Hold: HoldOptions{MaxWait: time.Minute}}
	for name, c := range map[string]struct {
		options func(*ServerOptions)
		query   Query
		mode    modev3.ProcessingMode_BodySendMode
		granted string
		drained bool
		want    time.Duration
	}{
		"buffered":            {nil, Query{}, buffered, "90000", false, time.Minute},
		"partial":             {nil, Query{}, partial, "90000", false, time.Minute},
		"less granted":        {nil, Query{}, buffered, "500", false, 500 * time.Millisecond},
		"nothing granted":     {nil, Query{}, buffered, "", false, 0},
		"nonsense":            {nil, Query{}, buffered, "-1", false, 0},
		"duplex":              {nil, Query{}, duplex, "90000", false, 0},
		"off":                 {func(o *ServerOptions) { o.Hold.MaxWait = 0 }, Query{}, buffered, "90000", false, 0},
		"picker":              {func(o *ServerOptions) { o.Picker = true }, Query{}, buffered, "90000", false, 0},
		"always":              {func(o *ServerOptions) { o.AlwaysPick = true }, Query{}, buffered, "90000", false, 0},
		"without hint":        {nil, Query{Withheld: decision.WithheldShadow}, buffered, "90000", false, 0},
		"never shed for load": {nil, Query{Priority: 1}, buffered, "90000", false, 0},
		"going down":          {nil, Query{}, buffered, "90000", true, 0},
	} {
		o := on
		if c.options != nil {
			c.options(&o)
		}
		s := NewServer(NewRouter(nil, nil, nil, nil, RouterOptions{}), o)
		if c.drained {
			s.Drain()
			s.Drain()
		}
		st := s.stream(c.mode, new(hint))
		st.q = c.query
		if got := st.mayHold(granting(t.Context(), c.granted)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestImpatientEnvoys: the shortest wait of an Envoy below the longest hold is told, until all have
// granted enough for a minute, or the setting is another one.
func TestImpatientEnvoys(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	o := ServerOptions{Hold: HoldOptions{MaxWait: time.Minute}}
	s := NewServer(NewRouter(nil, nil, nil, nil, RouterOptions{Now: func() time.Time { return now }}), o)
	for i, step := range []struct {
		after   time.Duration
		mode    modev3.ProcessingMode_BodySendMode
		granted string
		told    bool
		want    time.Duration
	}{
		{0, buffered, "60000", false, 0},
		{0, buffered, "30000", true, 30 * time.Second},
		{0, buffered, "40000", true, 30 * time.Second},
		{0, partial, "", true, 0},
		{50 * time.Second, buffered, "60000", true, 0},
		{20 * time.Second, buffered, "60000", false, 0},
		{0, duplex, "60000", true, 0},
		{40 * time.Second, buffered, "30000", true, 30 * time.Second}, // the other one may be another Envoy by now
	} {
		now = now.Add(step.after)
		s.stream(step.mode, new(hint)).mayHold(granting(t.Context(), step.granted))
		if got, told := s.Impatient(); told != step.told || got != step.want {
			t.Errorf("step %d: %v %v, want %v %v", i, told, got, step.told, step.want)
		}
	}
	if s.Set(o); s.least.Load() != nil {
		t.Error("told of the setting before")
	}
}

// heldTicket returns the ticket of a request that is held behind a session at work.
func heldTicket(t *testing.T) *sessions.Ticket {
	t.Helper()
	table, set, now := sessions.New(), &policy.Sessions{Share: 1e-9}, time.Now()
	cache := new(history.History).Of(index.Holder{Replica: "r"})
	cache.SetCapacity(1000)
	for i := range 2 {
		m := prefixhash.MarksOf(32)
		keys := []prefixhash.Key{prefixhash.Link(1, prefixhash.Content(i))}
		r := &sessions.Request{
			Model: "m", Prompt: history.Prompt{Keys: keys, Marks: m}, Tokens: 900, MayHold: true,
			Sites: []sessions.Site{{Cache: cache, Size: 1000, Rate: 1000}},
		}
		if _, _, held, _ := table.Admit(set, r, now); held != nil {
			return held
		}
	}
	t.Fatal("nothing is held")
	return nil
}

// TestHeldBodiesAreBounded: a body that finds no room among those of held requests waits not, and
// nothing of it is counted later.
func TestHeldBodiesAreBounded(t *testing.T) {
	b := newBench(t, fakeTokens{n: 100}, replica(1))
	s := NewServer(b.router, ServerOptions{MaxBodies: 1000, Hold: HoldOptions{MaxWait: time.Minute, Full: policy.Refuse}})
	held := b.router.metrics.held
	begin := func(size int) (*stream, *response) {
		st := s.stream(buffered, new(hint))
		st.ours, st.q.MayHold = true, time.Minute
		st.d = decision.Decision{Reason: decision.ReasonHeld, Held: heldTicket(t)}
		return st, st.hold(t.Context(), make([]byte, size))
	}
	st, wait := begin(400)
	if wait.GetOverrideMessageTimeout().AsDuration() != time.Minute || st.decided || held.bodies.Used() != 400 {
		t.Fatalf("not held: %v, %d bytes", wait, held.bodies.Used())
	}
	if other, wait := begin(200); wait != nil || other.d.Reason != decision.ReasonHeldFull {
		t.Errorf("beyond the room for held bodies: %v, %s", wait, other.d.Reason)
	} else {
		answer := other.answer(other.hint.ofBody).GetImmediateResponse()
		h := answer.GetHeaders().GetSetHeaders()
		if answer.GetStatus().GetCode() != 429 || len(h) != 1 || h[0].Header.Key != "retry-after" || string(h[0].Header.RawValue) != "900" {
			t.Errorf("answer %v", answer)
		}
	}
	st.close()
	if held.bodies.Used() != 0 {
		t.Errorf("%d bytes are still counted", held.bodies.Used())
	}
	if st, wait := begin(500); wait == nil {
		t.Error("no room, although the first one has left")
	} else {
		st.close()
	}
}

// kept is the replies on a stream that ends with the test.
type kept struct {
	extprocv3.ExternalProcessor_ProcessServer
	ctx context.Context
	got []*response
}

func (k *kept) Context() context.Context { return k.ctx }
func (k *kept) Send(r *response) error   { k.got = append(k.got, r); return nil }

// TestAWaitIsOver: a request that has waited for as long as Envoy does is refused, or goes on.
func TestAWaitIsOver(t *testing.T) {
	for full, status := range map[policy.Full]int{policy.Refuse: 429, policy.Pass: 0} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, fakeTokens{n: 100}, replica(1))
			s := NewServer(b.router, ServerOptions{MaxBodies: 1000, Hold: HoldOptions{MaxWait: time.Minute, Full: full}})
			st := s.stream(buffered, new(hint))
			st.ours, st.q.MayHold = true, time.Minute
			st.d = decision.Decision{Reason: decision.ReasonHeld, Held: heldTicket(t)}
			if st.hold(t.Context(), nil) == nil {
				t.Fatal("it is not held")
			}
			begun, ss := time.Now(), &kept{ctx: t.Context()}
			if err := s.finishHeld(ss, st); err != nil || len(ss.got) != 1 {
				t.Fatalf("%v, %d replies", err, len(ss.got))
			}
			if got := int(ss.got[0].GetImmediateResponse().GetStatus().GetCode()); got != status {
				t.Errorf("%s: status %d, want %d", full, got, status)
			}
			if waited := time.Since(begun); waited >= time.Minute || waited < 50*time.Second {
				t.Errorf("%s: after %v", full, waited)
			}
			st.close()
		})
	}
}
