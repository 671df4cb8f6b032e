package filter

import (
	"context"
	"errors"
	"strconv"
	"time"

	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/extprocwire"
	"warmroute/internal/prefill"
)

// Transport is the way of a prompt's KV cache from the replica that computes it to the one
// that answers.
type Transport string

// The transports.
const (
	TransportOff    Transport = "off"    // no request is split
	TransportPull   Transport = "pull"   // the router sends the prefill leg; the body takes its kv_transfer_params along
	TransportHeader Transport = "header" // a sidecar of the second replica sends the prefill leg, to the replica in envoy.HeaderPrefiller
)

// Legs sends prefill legs; a prefill.Sender does.
type Legs interface {
	Send(context.Context, *prefill.Leg) (prefill.Answer, error)
}

// SplitOptions say how requests are split. The zero value splits none.
type SplitOptions struct {
	Transport Transport
	MaxWait   time.Duration // longest wait for a prefill leg, where it is waited for
	Legs      Legs          // where it is waited for
}

// answerMargin is how much longer than a prefill leg Envoy is asked to wait for the answer
// about it. It is less than Envoy's own margin over the longest wait.
const answerMargin = 500 * time.Millisecond

// maySplit reports whether the transport can carry a split of a request with so many bytes of
// body, and sets the longest wait. A request without a hint is not split. A leg is waited for in BUFFERED mode alone, which fails
// open, and only if Envoy has said that it will wait.
func (st *stream) maySplit(ctx context.Context, body int) bool {
	switch t := st.o.Split.Transport; {
	case st.q.Withheld != "":
		return false
	case t != TransportPull:
		return t == TransportHeader && !st.q.Bare
	case st.mode != modev3.ProcessingMode_BUFFERED || body > announced(ctx, envoy.KeySplitBody):
		return false
	}
	st.wait = min(st.o.Split.MaxWait, time.Duration(announced(ctx, envoy.KeyWait))*time.Millisecond)
	return st.wait > 0
}

// announced returns a number that Envoy's configuration sends with the stream, 0 for none.
func announced(ctx context.Context, key string) int {
	for _, v := range metadata.ValueFromIncomingContext(ctx, key) {
		if n, err := strconv.Atoi(v); err == nil {
			return max(n, 0)
		}
	}
	return 0
}

// begin prepares the prefill leg of a decision with a split, and returns the answer that asks
// Envoy to wait for it; nil: there is nothing to wait for. The stream keeps the body meanwhile.
func (st *stream) begin(body []byte) *response {
	s := st.d.Split
	if s == nil || st.o.Split.Transport != TransportPull {
		return nil
	}
	if s.Wait > 0 {
		st.wait = min(st.wait, s.Wait)
	}
	st.leg = &prefill.Leg{
		Addr: s.Prefill, Rank: s.Rank, Route: st.q.Route, Body: body, Lengths: st.q.Lengths, ID: st.q.ID, Parent: st.q.Parent,
		Timeout: st.wait,
	}
	return &extprocv3.ProcessingResponse{OverrideMessageTimeout: durationpb.New(st.wait + answerMargin)}
}

// finish waits for the stream's prefill leg and answers the body. Without the leg's help the
// request goes on to the same replica, which computes the prompt itself. Envoy sends nothing
// meanwhile but the end of the stream, which ends ss's context and with it the leg. The
// decision's record has the split's end before Envoy has the answer.
func (s *Server) finish(ss extprocv3.ExternalProcessor_ProcessServer, st *stream) error {
	begun := s.router.o.Now()
	a, err := st.o.Split.Legs.Send(ss.Context(), st.leg)
	st.mu.Lock()
	defer st.mu.Unlock()
	end := s.router.o.Now()
	defer func() { st.spent += s.router.o.Now().Sub(end) }()
	gone := ss.Context().Err()
	switch {
	case gone != nil:
		st.d.Split.Abandoned()
	case err != nil:
		st.d.Split.Failed(splitReason(err))
		st.o.Log.Debug("filter: a prefill leg brought nothing", "replica", st.leg.Addr, "error", err)
	default:
		if a.Cached != nil {
			st.d.Split.HitOf(*a.Cached)
		}
		st.d.Split.Done(a.Tokens)
		st.give(a.Params)
	}
	counted := st.prefilled(&a, err)
	s.router.ring.Split(st.d.Seq, st.q.ID, st.d.Split)
	if st.q.Parent != "" {
		s.router.o.Tracer.Prefilled(&TracedLeg{st.q.Parent, st.d.Split.Prefill, st.q.ID, st.d.Split.Reason(), begun, end})
	}
	st.returned()
	if gone != nil {
		return gone
	}
	if err := ss.Send(st.answer(st.hint.ofBody)); err != nil {
		return err
	}
	if counted != nil {
		s.router.o.Prefilled(counted)
	}
	return nil
}

// Prefilled is what a replica counted of a prompt that it has computed for another, beside
// what the router counted and predicted.
type Prefilled struct {
	Replica                     string
	Decision                    uint64 // the number of the decision's record
	ID                          string // the request's
	Prompt, Predicted, Reported int    // tokens of the prompt; of these, tokens expected in its cache, and reported by its events
	Counted, Cached             int    // tokens of the prompt, and of these those that it took from its cache, as it counted
}

// prefilled returns what the answer about the stream's leg says, nil if it says nothing.
func (st *stream) prefilled(a *prefill.Answer, err error) *Prefilled {
	if err != nil || a.Cached == nil {
		return nil
	}
	s := st.d.Split
	return &Prefilled{
		Replica: s.Prefill, Decision: st.d.Seq, ID: st.q.ID, Prompt: st.d.Tokens, Predicted: s.Predicted, Reported: s.Reported(), Counted: a.Tokens, Cached: *a.Cached,
	}
}

// returned gives the memory of the leg's body to a later request.
func (st *stream) returned() {
	extprocwire.Recycle(st.leg.Body)
	st.leg = nil
	st.free()
}

// give puts the leg's kv_transfer_params into the answer about the body.
func (st *stream) give(params []byte) {
	if at, ok := prefill.At(st.leg.Body); ok {
		st.hint.metadata.splice = splice{to: st.d.First(), at: at, size: len(st.leg.Body), text: prefill.Splice(params)}
	}
}

// splitReason says why a leg brought nothing.
func splitReason(err error) decision.SplitReason {
	switch {
	case errors.Is(err, prefill.ErrBusy):
		return decision.SplitPrefillBusy
	case errors.Is(err, prefill.ErrRefused):
		return decision.SplitPrefillRefused
	case errors.Is(err, prefill.ErrNoParams):
		return decision.SplitNoParams
	case errors.Is(err, context.DeadlineExceeded):
		return decision.SplitPrefillSlow
	}
	return decision.SplitPrefillFailed
}
