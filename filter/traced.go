package filter

import (
	"bytes"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"warmroute/internal/decision"
)

// Tracer receives the decisions on requests whose trace is sampled, and the waits for their
// prefill legs. It must not wait, and must not keep its arguments.
type Tracer interface {
	Decided(*Traced)
	Prefilled(*TracedLeg)
}

// TracedLeg is the wait for a prefill leg of a request that is traced.
type TracedLeg struct {
	Parent     string // the request's traceparent
	Replica    string // that computed the prompt
	ID         string // the request's x-request-id
	Reason     decision.SplitReason
	Start, End time.Time
}

// Traced is a decision on a request that is traced.
type Traced struct {
	Parent string // the request's traceparent
	Record *decision.Record
	Phases [4]Phase // in order
}

// Phase is a part of a decision. A phase that was not reached has no end.
type Phase struct {
	Name string
	End  time.Time
}

// trace passes the decision in s to the tracer.
func (r *Router) trace(q *Query, s *scratch) {
	if q.Parent == "" {
		return
	}
	rec := &s.work.Record
	end := rec.At
	ended := func(took time.Duration) time.Time {
		if took == 0 {
			return time.Time{}
		}
		end = end.Add(took)
		return end
	}
	t := &Traced{Parent: q.Parent, Record: rec}
	t.Phases = [...]Phase{{"read", ended(s.took[phaseParse])}, {"tokenize", ended(s.took[phaseTokens])}, {"lookup", s.work.LookedUp}, {"decide", ended(s.took[phasePlace])}}
	r.o.Tracer.Decided(t)
}

// sampledParent returns the value of a traceparent header whose trace is sampled, and
// "" of any other, for which nothing is allocated.
func sampledParent(hv *corev3.HeaderValue) string {
	if v := headerBytes(hv); sampled(v) {
		return string(v)
	}
	return ""
}

// sampled reads the flag of a traceparent (version-trace-parent-flags). The
// tracer checks the rest of it.
func sampled(traceparent []byte) bool {
	const flags = 54 // position of its last digit
	return len(traceparent) > flags && bytes.IndexByte([]byte("13579bdf"), traceparent[flags]) >= 0
}
