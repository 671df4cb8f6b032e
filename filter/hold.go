package filter

import (
	"context"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"

	"warmroute/envoy"
	"warmroute/internal/bound"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/extprocwire"
	"warmroute/internal/sessions"
)

// HoldOptions say how requests wait in the router. Which ones wait is the policy's. The zero
// value holds none.
type HoldOptions struct {
	MaxWait time.Duration // longest wait; Envoy may grant less, and has granted none until it says so
	Full    policy.Full   // what happens to a request that may not wait, or no longer
	Header  string        // request header with the id of a session, in lower case; "" = none
}

// holding is a request that waits at its body. Its bytes count as long as it waits.
type holding struct {
	ticket *sessions.Ticket
	body   []byte
	since  time.Time
	wait   time.Duration // that Envoy was asked for
	first  sessions.Wait // as its first decision told it
}

// Ends of a hold: labels of a metric.
const (
	heldSent    = "sent"    // its turn came
	heldLeft    = "left"    // its client went away
	heldRefused = "refused" // it was answered 429
	heldPassed  = "passed"  // it went on before its turn: the router goes down, or the longest wait is over
)

// heldMetrics are the metrics of held requests.
type heldMetrics struct {
	now     prometheus.Gauge
	seconds map[string]prometheus.Observer // by end
	bodies  bound.Pool                     // bytes of the bodies of held requests
}

func newHeldMetrics(reg prometheus.Registerer) *heldMetrics {
	m := new(heldMetrics)
	m.now = prometheus.NewGauge(prometheus.GaugeOpts{Name: "warmroute_held_requests", Help: "Requests that are held now."})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "warmroute_held_seconds", Help: "Time for which requests were held, by end: sent, left (by the client), refused (429), passed (before its turn).",
		Buckets: []float64{0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600, 1200, 3600}}, []string{"end"})
	m.seconds = map[string]prometheus.Observer{}
	for _, end := range []string{heldSent, heldLeft, heldRefused, heldPassed} {
		m.seconds[end] = seconds.WithLabelValues(end)
	}
	reg.MustRegister(m.now, seconds)
	return m
}

// Drain lets all held requests go at once, and holds no other.
func (s *Server) Drain() { s.drain.Do(func() { close(s.drained) }) }

// mayHold returns how long the request may wait, 0: it may not. It waits at a body that Envoy has
// complete, where a failure of the router costs no request, and if Envoy has said that it waits. A
// picker's gateway, and a request that is never refused for load, are not kept waiting.
func (st *stream) mayHold(ctx context.Context) time.Duration {
	o := st.o
	if o.Hold.MaxWait <= 0 || o.Picker || o.AlwaysPick || st.q.Withheld != "" || st.q.Priority > 0 {
		return 0
	}
	select {
	case <-st.srv.drained:
		return 0
	default:
	}
	var granted time.Duration
	if st.mode == modev3.ProcessingMode_BUFFERED || st.mode == modev3.ProcessingMode_BUFFERED_PARTIAL {
		granted = time.Duration(announced(ctx, envoy.KeyHold)) * time.Millisecond
	}
	st.srv.noteGrant(granted, o.Hold.MaxWait)
	return min(o.Hold.MaxWait, granted)
}

// grant is how long an Envoy waits for a held request, as of a time.
type grant struct {
	wait time.Duration
	at   time.Time
}

// grantLasts is how long the least grant is told after Envoys have only granted enough.
const grantLasts = time.Minute

// noteGrant keeps the least grant below most.
func (s *Server) noteGrant(wait, most time.Duration) {
	now, least := s.router.o.Now(), s.least.Load()
	switch {
	case wait < most && (least == nil || wait < least.wait || now.Sub(least.at) > grantLasts/2):
		s.least.Store(&grant{wait, now})
	case wait >= most && least != nil && now.Sub(least.at) > grantLasts:
		s.least.CompareAndSwap(least, nil)
	}
}

// Impatient returns the shortest time for which an Envoy waits for held requests, if that is shorter
// than HoldOptions.MaxWait.
func (s *Server) Impatient() (wait time.Duration, is bool) {
	if least := s.least.Load(); least != nil {
		return least.wait, true
	}
	return 0, false
}

// hold begins the wait of a request whose decision has a ticket, and returns the answer that asks
// Envoy to wait, too. It returns nil for a request that is answered now: the bodies of held
// requests take at most half of the room of all bodies.
func (st *stream) hold(ctx context.Context, body []byte) *response {
	if st.d.Reason != decision.ReasonHeld {
		return nil
	}
	m, now := st.srv.router.metrics.held, st.srv.router.o.Now()
	st.holding = &holding{ticket: st.d.Held, body: body, since: now, wait: st.q.MayHold, first: st.d.Held.Wait(now)}
	st.decided = false
	m.now.Inc()
	st.srv.crowd.leave(&st.place) // MaxStreams is for others
	if !m.bodies.Take(int64(len(body)), st.o.MaxBodies/2) {
		st.holding.body = nil
		st.giveUp(ctx, body)
		return nil
	}
	return &extprocv3.ProcessingResponse{OverrideMessageTimeout: durationpb.New(st.holding.wait)}
}

// finishHeld waits until the stream's request may go, and answers its body. Envoy sends nothing
// meanwhile but the end of the stream, which ends ss's context: then close gives up the wait.
// Envoy prolongs its own wait once for a message, so that ends with a margin before it.
func (s *Server) finishHeld(ss extprocv3.ExternalProcessor_ProcessServer, st *stream) error {
	longest := time.NewTimer(st.holding.wait - min(answerMargin, st.holding.wait/2))
	defer longest.Stop()
	for st.holding != nil {
		select {
		case <-ss.Context().Done():
			return ss.Context().Err()
		case <-longest.C:
			st.again(ss.Context(), st.giveUp)
		case <-s.drained:
			st.again(ss.Context(), st.pass)
		case <-st.holding.ticket.Ready():
			st.again(ss.Context(), st.decideHeld)
		}
	}
	return ss.Send(st.answer(st.hint.ofBody))
}

// again decides a held request in one of the ways below.
func (st *stream) again(ctx context.Context, how func(context.Context, []byte)) {
	st.mu.Lock()
	defer st.mu.Unlock()
	start := st.srv.router.o.Now()
	how(ctx, st.holding.body)
	st.spent += st.srv.router.o.Now().Sub(start)
}

// decideHeld decides the request, which may be held once more.
func (st *stream) decideHeld(ctx context.Context, body []byte) {
	if st.redecide(ctx, body); st.d.Reason != decision.ReasonHeld {
		st.endHold(heldSent)
		return
	}
	st.holding.ticket, st.decided = st.d.Held, false
}

// pass lets the request go before its turn.
func (st *stream) pass(ctx context.Context, body []byte) {
	st.q.MayHold = 0
	st.redecide(ctx, body)
	st.endHold(heldPassed)
}

// giveUp ends the wait of a request that can wait no longer. A retry of it has its place.
func (st *stream) giveUp(ctx context.Context, body []byte) {
	h := st.holding
	if st.o.Hold.Full == policy.Pass {
		st.pass(ctx, body)
		return
	}
	h.ticket.Leave(st.srv.router.o.Now())
	d := st.srv.router.Skip(&st.q, decision.ReasonHeldFull)
	d.Held = h.ticket
	st.decide(d)
	st.endHold(heldRefused)
}

// redecide decides the request again by its body.
func (st *stream) redecide(ctx context.Context, body []byte) {
	h, r := st.holding, st.srv.router
	st.q.Body, st.q.MaySplit, st.q.Ticket = body, false, h.ticket
	st.q.Waited = h.first
	st.q.Waited.Waited = r.o.Now().Sub(h.since)
	st.decide(r.Route(ctx, &st.q))
	st.q.Body, st.q.Ticket = nil, nil
	if st.d.Held == nil {
		h.ticket.Leave(r.o.Now()) // also where the request goes on without a placement
	}
}

// endHold ends the hold, and what it counted for.
func (st *stream) endHold(end string) {
	h, m := st.holding, st.srv.router.metrics.held
	st.holding = nil
	m.now.Dec()
	m.seconds[end].Observe(st.srv.router.o.Now().Sub(h.since).Seconds())
	if h.body != nil {
		m.bodies.Give(int64(len(h.body)))
		extprocwire.Recycle(h.body)
		st.free()
	}
}

// leaveHold is the end of a stream whose request is held.
func (st *stream) leaveHold() {
	if st.holding != nil {
		st.holding.ticket.Leave(st.srv.router.o.Now())
		st.endHold(heldLeft)
	}
}

// tooMany answers 429, with the time after which the client may find room.
func tooMany(reason decision.Reason, after time.Duration) *response {
	r := immediate(typev3.StatusCode_TooManyRequests, reason)
	seconds := strconv.Itoa(int((after + time.Second - 1) / time.Second))
	r.GetImmediateResponse().Headers = &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{overwrite("retry-after", seconds)}}
	return r
}
