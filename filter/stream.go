package filter

import (
	"bytes"
	"context"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"warmroute/internal/decision"
	"warmroute/internal/extprocwire"
	"warmroute/internal/prefill"
)

// stream is the state of one HTTP request. Its goroutine owns it; the goroutine that
// ends the wait for a body locks it, too.
//
// What each body mode requires:
//
//	NONE, STREAMED         answer every message plainly: no hint is possible
//	BUFFERED[_PARTIAL]     answer the headers plainly, the body with the hint
//	FULL_DUPLEX_STREAMED   hold everything, then answer the headers with the
//	                       hint and give the body back in the received chunks,
//	                       or at once where trailers ended it
//
// What carries no prompt is not held, so that uploads and upgraded connections flow: its
// headers are answered at once. In BUFFERED mode the stream then ends and Envoy goes on by
// itself; in BUFFERED_PARTIAL mode the answer overrides the mode. A form waits for its body
// where the model in it chooses the replicas.
type stream struct {
	mu   sync.Mutex
	o    *ServerOptions // the options when the request came
	srv  *Server
	hint *hint
	q    Query
	modes
	incoming
	chunks
	decided bool
	d       decision.Decision
	refused bool // with a status of the router: nothing more may be sent
	reply
	pause
	spent  time.Duration // answering
	closed bool
}

// modes are Envoy's of sending bodies.
type modes struct {
	mode modev3.ProcessingMode_BodySendMode // of the request body
	resp modev3.ProcessingMode_BodySendMode // of the response body
}

// pause is what the answer to a message waits for.
type pause struct {
	wait    time.Duration // longest wait for a prefill leg
	leg     *prefill.Leg  // is waited for; nil: none is
	holding *holding      // the request is held; nil: it is not
}

// incoming is what the headers of a request tell, besides its query.
type incoming struct {
	place      place
	overLimit  bool   // beyond MaxStreams: passes without a hint
	form       string // content type of a form whose model is read
	tenants    int    // number of tenant headers
	priorities int    // number of priority headers
	ours       bool   // the route carries a prompt
}

// chunks are the body of a request.
type chunks struct {
	held  [][]byte    // of a duplex body, until they are returned
	size  int         // bytes in held
	taken int         // bytes counted as worked on or held
	ended bool        // the request's end of stream was seen
	late  *time.Timer // ends the wait for a duplex body; nil before the wait began
}

// reply is what was seen of the response.
type reply struct {
	answered bool   // its headers
	over     bool   // its end of stream
	status   int    // 0 = not seen
	served   string // the replica that served, "" = not known, or none
}

type (
	request  = extprocv3.ProcessingRequest
	response = extprocv3.ProcessingResponse
)

// step takes one message and appends the answers to out.
func (st *stream) step(ctx context.Context, m *request, out []*response) []*response {
	if st.refused {
		return out // sent before Envoy processed the answer
	}
	if pc := m.GetProtocolConfig(); pc != nil {
		st.mode, st.resp = pc.GetRequestBodyMode(), pc.GetResponseBodyMode()
	}
	st.latch(m.GetMetadataContext())
	switch v := m.Request.(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return st.requestHeaders(v.RequestHeaders, out)
	case *extprocv3.ProcessingRequest_RequestBody:
		if !st.decided && !st.waits() {
			st.skip(decision.ReasonNoHeaders)
		}
		if st.duplex() {
			return st.duplexBody(ctx, v.RequestBody, out)
		}
		return st.bufferedBody(ctx, v.RequestBody, out)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return st.requestTrailers(ctx, out)
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		return append(out, st.responseHeaders(m))
	case *extprocv3.ProcessingRequest_ResponseBody:
		st.over = st.over || v.ResponseBody.GetEndOfStream()
		if st.resp == modev3.ProcessingMode_FULL_DUPLEX_STREAMED {
			return appendChunks(out, v.ResponseBody.GetBody(), v.ResponseBody.GetEndOfStream(), false)
		}
		return append(out, plainResponseBody)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		st.over = true
		return append(out, plainResponseTrailers)
	}
	return out
}

func (st *stream) duplex() bool { return st.mode == modev3.ProcessingMode_FULL_DUPLEX_STREAMED }

// answer is build(decision), or the protocol's error status in picker mode.
func (st *stream) answer(build func(*decision.Decision) *response) *response {
	if code, ok := st.o.refusal(st.d.Reason, st.q.Withheld); ok {
		st.refused = true
		return immediate(code, st.d.Reason)
	}
	if st.d.Reason == decision.ReasonHeldFull {
		st.refused = true
		return tooMany(st.d.Reason, st.d.Held.RetryAfter(st.srv.router.o.Now()))
	}
	return build(&st.d)
}

// decide takes the decision. If the gateway needs a replica in any case, decide names
// one for a decision without one.
func (st *stream) decide(d decision.Decision) {
	st.d, st.decided = d, true
	if st.o.AlwaysPick && d.Chosen == "" && d.Reason != decision.ReasonUnfinished {
		if _, refused := st.o.refusal(d.Reason, st.q.Withheld); !refused {
			st.srv.router.Any(&st.q, &st.d)
		}
	}
}

// skip ends a request without a decision, with a reason. What is not ours no longer counts.
func (st *stream) skip(reason decision.Reason) {
	if reason = st.of(reason); promptless(reason) {
		st.srv.crowd.leave(&st.place)
	}
	st.decide(st.srv.router.Skip(&st.q, reason))
}

func (st *stream) bufferedBody(ctx context.Context, b *extprocv3.HttpBody, out []*response) []*response {
	if st.decided || st.ended || !st.waits() {
		return append(out, plainRequestBody)
	}
	st.ended = b.GetEndOfStream()
	switch {
	case len(b.GetBody()) > st.o.MaxBody:
		st.skip(decision.ReasonBodyTooLarge)
	case !st.ended && st.mode == modev3.ProcessingMode_BUFFERED_PARTIAL:
		st.skip(decision.ReasonBodyCut)
	case !st.take(len(b.GetBody())):
		st.skip(decision.ReasonBusy)
	default:
		st.route(ctx, b.GetBody())
		wait := st.begin(b.GetBody())
		if wait == nil {
			wait = st.hold(ctx, b.GetBody())
		}
		if wait != nil {
			b.Body = nil // the leg or the hold has it
			return append(out, wait)
		}
	}
	st.free()
	extprocwire.Recycle(b.Body)
	b.Body = nil
	return append(out, st.answer(st.hint.ofBody))
}

func (st *stream) duplexBody(ctx context.Context, b *extprocv3.HttpBody, out []*response) []*response {
	if st.ended {
		return out // Envoy 1.35 to 1.37 repeat the end of stream on large bodies and expect no answer
	}
	st.ended = b.GetEndOfStream()
	if st.decided {
		return appendChunks(out, b.GetBody(), st.ended, true)
	}
	st.held = append(st.held, b.GetBody())
	st.size += len(b.GetBody())
	fits := st.take(len(b.GetBody()))
	switch {
	case !fits:
		st.skip(decision.ReasonBusy)
		return st.flush(ctx, out, st.ended)
	case st.ended:
		return st.flush(ctx, out, true)
	case st.size > st.o.MaxBody:
		st.skip(decision.ReasonBodyTooLarge)
		return st.flush(ctx, out, false)
	}
	return out
}

// flush decides, if nothing has decided yet, and returns the held chunks.
func (st *stream) flush(ctx context.Context, out []*response, end bool) []*response {
	switch {
	case st.decided:
	case !st.takeCopy():
		st.skip(decision.ReasonBusy)
	default:
		body, done := st.srv.join(st.held)
		st.route(ctx, body)
		done()
	}
	st.free()
	out = append(out, st.answer(st.hint.ofHeaders))
	held := st.release()
	if st.refused {
		return out
	}
	for i, b := range held {
		last := i == len(held)-1
		if len(b) == 0 && !(last && end) {
			continue
		}
		out = appendChunks(out, b, last && end, true)
	}
	return out
}

// of returns the reason of a request without a decision: what carries no prompt has one
// reason.
func (st *stream) of(reason decision.Reason) decision.Reason {
	if !st.ours && reason != decision.ReasonNoHeaders {
		return decision.ReasonNotOurs
	}
	return reason
}

// promptless reports whether a request has no prompt, as far as Envoy shows it.
func promptless(r decision.Reason) bool {
	return r == decision.ReasonNotOurs || r == decision.ReasonNoHeaders
}

// waits reports whether the body decides.
func (st *stream) waits() bool { return st.ours || st.form != "" }

// route decides a request by its complete body.
func (st *stream) route(ctx context.Context, body []byte) {
	switch {
	case st.form != "":
		st.skip(decision.ReasonNotOurs)
		st.d.Model = formModel(st.form, body)
		return
	case !st.srv.crowd.complete(&st.place, st.o, st.srv.router.o.Now()):
		st.skip(decision.ReasonStreams)
		return
	}
	st.q.Body, st.q.MaySplit, st.q.MayHold = body, st.maySplit(ctx, len(body)), st.mayHold(ctx)
	st.decide(st.srv.router.Route(ctx, &st.q))
	st.q.Body = nil
}

// release returns the held chunks and clears them.
func (st *stream) release() [][]byte {
	held := st.held
	st.held, st.size = nil, 0
	return held
}

// expire is called in duplex mode when the body did not arrive in time: the request
// continues without a hint.
func (st *stream) expire(out []*response) []*response {
	if st.decided || !st.waits() {
		return out
	}
	st.skip(decision.ReasonBodySlow)
	return st.flush(context.Background(), out, false)
}

// requestTrailers answers trailers, which end a body, too. A duplex body that was
// held until here goes back in one piece with the headers. In chunks it would reach
// the upstream twice: Envoy's router keeps them for retries, and Envoy 1.40 sends
// them once more when the trailers are answered (envoyproxy/envoy#46095).
func (st *stream) requestTrailers(ctx context.Context, out []*response) []*response {
	if !st.duplex() || st.ended {
		return append(out, plainRequestTrailers)
	}
	st.ended = true
	if st.decided {
		return append(out, plainRequestTrailers) // the chunks went back as they came
	}
	if !st.takeCopy() {
		st.skip(decision.ReasonBusy)
	}
	body := bytes.Join(st.release(), nil)
	if !st.decided {
		st.route(ctx, body)
	}
	st.free()
	return append(out, st.answer(func(d *decision.Decision) *response { return bodyHint(d, body, st.hint) })) // answers the trailers, too
}

// close gives the reason of a request that was never decided, and releases its
// charge. It is called when Envoy's stream ends: then the HTTP request has ended in
// some way.
func (st *stream) close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	st.leaveHold()
	st.free()
	if st.late != nil {
		st.late.Stop()
	}
	if st.spent > 0 {
		st.srv.router.metrics.stream.Observe(st.spent.Seconds())
	}
	if st.waits() && !st.decided {
		st.d, st.decided = st.srv.router.Skip(&st.q, st.of(decision.ReasonUnfinished)), true
	}
	st.srv.crowd.leave(&st.place)
	st.traceEnd()
	if st.d.Split != nil && st.o.Split.Transport == TransportHeader {
		st.d.Split.Sent()
	}
	if st.d.Reservation != nil {
		st.conclude(st.d.Reservation)
		st.d.Reservation.Release()
	}
	if st.d.Split != nil {
		st.srv.router.ring.Split(st.d.Seq, st.q.ID, st.d.Split)
	}
}

// conclude records in l how the response ended, as far as the stream shows it. Envoy
// ends the streams of failed and of successful requests alike, so that only a missing
// phase shows a failure: the end of a body that was sent here. In
// FULL_DUPLEX_STREAMED mode without a response phase Envoy 1.40 ends the stream once
// the request is through, and the status stays unknown: the prompt is taken for
// computed. The shipped configuration requests response headers and trailers there.
func (st *stream) conclude(l *decision.Reservation) {
	switch {
	case st.duplex() && !st.answered:
		l.Ended(true)
	case st.over:
		l.Ended(true)
	case st.answered && st.bodyReceived():
		l.Ended(false)
	}
}

// bodyReceived reports whether the end of a response must have been seen here: bodies
// are sent, and completely. (In BUFFERED_PARTIAL mode they may be cut.)
func (st *stream) bodyReceived() bool {
	switch st.resp {
	case modev3.ProcessingMode_STREAMED, modev3.ProcessingMode_BUFFERED, modev3.ProcessingMode_FULL_DUPLEX_STREAMED:
		return true
	}
	return false
}

// latch keeps the gateway's subset hint from the first message that has one:
// Envoy repeats metadata on every message, other proxies send it once.
func (st *stream) latch(md *corev3.Metadata) {
	if st.q.Subset != nil || md == nil {
		return
	}
	st.q.Subset = subsetOf(md)
}
