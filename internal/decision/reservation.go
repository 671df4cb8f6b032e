package decision

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/internal/load"
	"warmroute/prefixhash"
)

// Reservation holds one request's charge on an account, and its speculated prefix,
// until the request's stream ends. Any goroutine may call FirstToken and Release; only
// the request's stream calls Answered, Ended and Decider.Served.
type Reservation struct {
	d      *Decider
	charge atomic.Pointer[load.Charge]
	done   atomic.Bool
	status int    // the response's, 0 = not seen
	ending ending // the response's

	here        *holder // the holder that it was sent to
	mv          *View
	own         load.Charge // the first charge, so that a decision allocates once
	speculation speculation
}

// speculation names the keys that a request is expected to leave in a cache.
type speculation struct {
	keys *[]prefixhash.Key // not reported before, pooled; nil = none
	text bool              // keys are the text chain, not a token chain
}

var speculated = sync.Pool{New: func() any { return new([]prefixhash.Key) }}

// FirstToken records that the first token has come, for callers that see it before KV
// events do. It reports whether this call was the first.
func (r *Reservation) FirstToken() bool {
	c := r.charge.Load()
	return c != nil && c.FirstToken()
}

// ending says how a response ended.
type ending uint8

const (
	endUnseen ending = iota
	endComplete
	endBroken
)

// Answered records the response's status.
func (r *Reservation) Answered(status int) { r.status = status }

// Ended records whether the response was complete or broke off. Without a call, the
// replica's events decide whether the prompt is cached.
func (r *Reservation) Ended(complete bool) {
	r.ending = endBroken
	if complete {
		r.ending = endComplete
	}
}

// Release takes the request off the load and judges how it ended. Further calls
// do nothing.
func (r *Reservation) Release() {
	c := r.charge.Load()
	if c == nil || r.done.Swap(true) {
		return
	}
	came := c.Release()
	// A request that ends before the event that reports its first token was
	// refused, or cancelled, or failed after a status of 200: nothing will be
	// cached. If the event is only late, it reports the blocks a moment later.
	unheard := !came && c.Terms().Sentinel != 0 && r.ending != endComplete
	failed := c.RecordEnd(r.status, came)
	if failed || unheard || r.ending == endBroken {
		r.withdraw(r.here)
	}
	c.Settle(!failed && r.ending != endBroken && c.Looked(r.status, came))
	r.giveBack()
}

// end empties a reservation whose charge is released.
func (r *Reservation) end() {
	if !r.done.Swap(true) {
		r.giveBack()
	}
}

func (r *Reservation) giveBack() {
	if r.speculation.keys != nil {
		speculated.Put(r.speculation.keys)
		r.speculation.keys = nil
	}
}

// withdraw ends the speculation about a cache.
func (r *Reservation) withdraw(at *holder) {
	if r.speculation.keys == nil || r.speculation.text {
		return
	}
	r.d.index.Withdraw(r.mv.scopes[at.scope], at.id, *r.speculation.keys)
	r.d.send(Withdrawn, r.mv, at, *r.speculation.keys, 0)
}

// speculate counts the prompt as cached at the replica until the deadline, or until the
// replica's events report it.
func (r *Reservation) speculate(at *holder, until time.Time) {
	if r.speculation.keys == nil || r.speculation.text {
		return
	}
	r.d.index.Speculate(r.mv.scopes[at.scope], at.id, *r.speculation.keys, until)
	r.d.send(Speculated, r.mv, at, *r.speculation.keys, until.Sub(r.d.now()))
}

// Served moves the request of dec to the replica that really served it. The replicas
// before it in the list have failed, because Envoy passed them over.
func (d *Decider) Served(dec *Decision, addr string) {
	r := dec.Reservation
	if r == nil || r.here == nil || addr == r.here.replica.Addr || r.done.Load() {
		return
	}
	c := r.charge.Load()
	c.Release()
	c.Settle(false)
	r.withdraw(r.here)
	now := d.now()
	at := r.mv.find(addr, r.here.rank)
	if at == nil { // not a replica of this model: Envoy does not follow hints here
		r.end()
		return
	}
	if strings.Contains(dec.Destination, addr) {
		c.Failed(now.UnixNano())
	}
	from, terms := r.here, c.Terms()
	terms.Due += now.UnixNano() - terms.Sent
	terms.Sent, terms.Cached, terms.Claimed = now.UnixNano(), false, 0
	if at.scope != from.scope {
		terms.Sentinel = 0
	}
	next := new(load.Charge)
	d.ledger.Lock()
	next.Put(at.account, terms)
	d.ledger.Unlock()
	r.charge.Store(next)
	r.here = at
	switch {
	case r.speculation.text:
		d.observe(r.mv, *r.speculation.keys, at)
	case at.scope == from.scope:
		r.speculate(at, time.Unix(0, terms.Due))
	}
}
