package filter

import (
	"sync"
	"sync/atomic"

	"warmroute/index"
)

// Ledger counts what this router has in flight on every KV cache. Entries are
// charged inside the decision and released when the request's stream ends.
type Ledger struct {
	mu    sync.Mutex // guards loads, taken when fleet views are built, never by a decision
	loads map[index.Holder]*Load
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{loads: map[index.Holder]*Load{}} }

// Load is what is in flight on one KV cache.
type Load struct {
	inFlight atomic.Int64 // requests
	awaiting atomic.Int64 // requests before their first token
	pending  atomic.Int64 // ns of modelled prefill of the awaiting
	live     atomic.Int64 // context tokens of the requests in flight
}

// Of returns the load of h, which stays the same object until h is dropped.
func (l *Ledger) Of(h index.Holder) *Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	load := l.loads[h]
	if load == nil {
		load = &Load{}
		l.loads[h] = load
	}
	return load
}

// Drop forgets a replica's loads. Leases on them release into the void.
func (l *Ledger) Drop(replica string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for h := range l.loads {
		if h.Replica == replica {
			delete(l.loads, h)
		}
	}
}

// InFlight is the number of requests in flight.
func (l *Load) InFlight() int { return int(l.inFlight.Load()) }

// Awaiting is the number of requests whose first token has not come.
func (l *Load) Awaiting() int { return int(l.awaiting.Load()) }

// Pending is the modelled prefill of the awaiting requests in seconds.
func (l *Load) Pending() float64 { return float64(max(0, l.pending.Load())) / 1e9 }

// Live is the number of context tokens in flight.
func (l *Load) Live() int64 { return l.live.Load() }

// A Lease is one request's charge to a Load. The zero Lease charges nothing.
type Lease struct {
	load   *Load
	nanos  int64 // prefill charged
	tokens int64 // context charged
	state  atomic.Int32
}

const (
	leaseNone int32 = iota
	leaseAwaiting
	leaseDecoding
	leaseDone
)

// charge puts a request with that prefill and context on load.
func (l *Lease) charge(load *Load, prefill float64, tokens int) {
	l.load, l.nanos, l.tokens = load, int64(prefill*1e9), int64(tokens)
	load.inFlight.Add(1)
	load.awaiting.Add(1)
	load.pending.Add(l.nanos)
	load.live.Add(l.tokens)
	l.state.Store(leaseAwaiting)
}

// FirstToken takes the prefill off the load: the first token has come. It
// reports whether this call was the first to say so.
func (l *Lease) FirstToken() bool {
	if !l.state.CompareAndSwap(leaseAwaiting, leaseDecoding) {
		return false
	}
	l.load.awaiting.Add(-1)
	l.load.pending.Add(-l.nanos)
	return true
}

// Release takes the request off the load. Further calls do nothing.
func (l *Lease) Release() {
	l.FirstToken()
	if !l.state.CompareAndSwap(leaseDecoding, leaseDone) {
		return
	}
	l.load.inFlight.Add(-1)
	l.load.live.Add(-l.tokens)
}
