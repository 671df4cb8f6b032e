package load

import (
	"math"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/prefixhash"
)

// rig is a ledger on a clock of its own.
type rig struct {
	*Ledger
	t   *testing.T
	now time.Time
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, now: time.Unix(1_700_000_000, 0)}
	r.Ledger = NewLedger(func() time.Time { return r.now })
	return r
}

func (r *rig) wait(d time.Duration) { r.now = r.now.Add(d) }

func (r *rig) nanos() int64 { return r.now.UnixNano() }

var (
	one = index.Holder{Replica: "10.0.0.1:8000"}
	two = index.Holder{Replica: "10.0.0.2:8000"}
)

// put charges a request that is due in a minute.
func (r *rig) put(h index.Holder, t Terms) *Charge {
	t.Sent = r.nanos()
	if t.Due == 0 {
		t.Due = t.Sent + int64(time.Minute)
	}
	c := new(Charge)
	r.Lock()
	defer r.Unlock()
	c.Put(r.Of(h), t)
	return c
}

// stored has a replica publish blocks, one event each.
func (r *rig) stored(h index.Holder, contents ...uint64) {
	b := &index.Batch{Holder: h}
	for _, c := range contents {
		b.Events = append(b.Events, event(index.TierGPU, c))
	}
	r.Applied(b)
}

// event stores an unrelated block, and then the one with this content.
func event(tier index.Tier, content uint64) index.Event {
	return index.Event{
		Kind: index.Stored, Tier: tier, Hashes: []uint64{1, content + 1000}, Content: []prefixhash.Content{1, prefixhash.Content(content)},
	}
}

func (r *rig) state(h index.Holder) policy.Load {
	r.Lock()
	defer r.Unlock()
	return r.Of(h).State(r.nanos())
}

// sums are an account's requests in flight.
type sums struct {
	inFlight, awaiting int
	pending            float64
	live               int64
	watched            int
}

func (r *rig) want(h index.Holder, want sums) {
	r.t.Helper()
	a := r.Of(h)
	if got := (sums{a.InFlight(), a.Awaiting(), a.Pending(), a.Live(), a.Sentinels()}); got != want {
		r.t.Errorf("%+v, want %+v", got, want)
	}
}

func near(got, want float64) bool { return math.Abs(got-want) < 1e-6*max(1, math.Abs(want)) }
