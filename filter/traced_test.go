package filter

import (
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"warmroute/internal/decision"
	"warmroute/render/testkit/race"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// keeper keeps the records that it receives.
type keeper struct {
	parents []string
	phases  [][4]Phase
	reasons []decision.Reason
	at      []time.Time
}

func (k *keeper) Prefilled(*TracedLeg) {}

func (k *keeper) Decided(t *Traced) {
	k.parents, k.phases, k.reasons = append(k.parents, t.Parent), append(k.phases, t.Phases), append(k.reasons, t.Record.Reason)
	k.at = append(k.at, t.Record.At)
}

// TestSampledParent: only the header of a sampled trace counts, in either field
// that Envoy may use, and any other costs no allocation.
func TestSampledParent(t *testing.T) {
	for value, want := range map[string]bool{
		traceparent: true, strings.TrimSuffix(traceparent, "1") + "3": true, strings.TrimSuffix(traceparent, "01") + "ff": true,
		strings.TrimSuffix(traceparent, "1") + "0": false, strings.TrimSuffix(traceparent, "1") + "e": false, traceparent[:54]: false, "": false,
	} {
		for _, hv := range []*corev3.HeaderValue{{Value: value}, {RawValue: []byte(value)}} {
			if got := sampledParent(hv); (got == value && value != "") != want || !want && got != "" {
				t.Errorf("%q: %q", value, got)
			}
			if n := testing.AllocsPerRun(100, func() { sampledParent(hv) }); !want && n != 0 {
				t.Errorf("%q: %v allocations", value, n)
			}
		}
	}
}

// TestTracerIsToldOfSampledRequests, and of no other; the phases are in order and
// within the decision.
func TestTracerIsToldOfSampledRequests(t *testing.T) {
	at, step := time.Unix(1_000_000_000, 0), time.Second
	now := func() time.Time { // each step takes longer than all later ones
		at, step = at.Add(step), step/2
		return at
	}
	b := newBenchAt(t, now, fakeTokens{n: 1000}, replica(1))
	var k keeper
	b.router.o.Tracer, b.router.o.Now = &k, now
	b.route(query())
	q := query()
	q.Parent = traceparent
	b.route(q)
	b.router.Skip(q, decision.ReasonBodyTooLarge)
	b.router.Skip(q, decision.ReasonNotOurs)
	if len(k.parents) != 2 || k.parents[0] != traceparent || k.reasons[0] != decision.ReasonWarm || k.reasons[1] != decision.ReasonBodyTooLarge {
		t.Fatalf("told of %v, %v", k.parents, k.reasons)
	}
	last := k.at[0]
	for _, p := range k.phases[0] {
		if p.End.IsZero() {
			continue
		}
		if p.End.Before(last) {
			t.Errorf("%s ends before the phase ahead of it: %v", p.Name, k.phases[0])
		}
		last = p.End
	}
}

// TestUntracedDecisionsAllocateNothingMore: a request that is not sampled costs
// the same with a tracer and without.
func TestUntracedDecisionsAllocateNothingMore(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector drops pooled memory at random")
	}
	b := newBench(t, fakeTokens{n: 1000}, replica(1))
	q := query()
	one := func() { b.route(q).Reservation.Release() }
	for range 100 {
		one()
	}
	without := leastAllocations(one)
	b.router.o.Tracer = new(keeper)
	if with := leastAllocations(one); with > without {
		t.Errorf("%v allocations a decision, %v without a tracer", with, without)
	}
}

// BenchmarkUntraced is what tracing costs a request whose trace is not sampled.
func BenchmarkUntraced(b *testing.B) {
	hv := &corev3.HeaderValue{RawValue: []byte(strings.TrimSuffix(traceparent, "1") + "0")}
	r, q, s := &Router{}, &Query{}, &scratch{}
	b.ReportAllocs()
	for b.Loop() {
		q.Parent = sampledParent(hv)
		r.trace(q, s)
	}
}
