package decision

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/internal/load"
	"warmroute/prefixhash"
)

// A Reservation is what one request holds until its stream ends: its charge on an
// account, and the prefix speculated to arrive there. FirstToken and Release may
// be called by anybody; Answered, Ended and Decider.Served belong to the
// request's stream.
type Reservation struct {
	d      *Decider
	charge atomic.Pointer[load.Charge]
	done   atomic.Bool
	status int    // the response's, 0 = not seen
	ending ending // the response's

	here        *cache // where it was sent
	mv          *View
	own         load.Charge // the first charge, so that a decision allocates once
	speculation speculation
}

// speculation is what is expected to be cached for a request, by scope.
type speculation struct {
	keys *[]prefixhash.Key // that were not reported yet, pooled; nil = nothing
	text bool              // keys are the text chain, not a token chain
}

var speculated = sync.Pool{New: func() any { return new([]prefixhash.Key) }}

// FirstToken records that the first token has come, from better knowledge than KV
// events. It reports whether that was news.
func (r *Reservation) FirstToken() bool {
	c := r.charge.Load()
	return c != nil && c.FirstToken()
}

// ending is how a response was seen to end.
type ending uint8

const (
	endUnseen ending = iota
	endWhole
	endBroken
)

// Answered notes the response's status.
func (r *Reservation) Answered(status int) { r.status = status }

// Ended records that the response came to its end, or that it broke off before.
// Where neither is seen, the replica's events are left to judge by.
func (r *Reservation) Ended(whole bool) {
	r.ending = endBroken
	if whole {
		r.ending = endWhole
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
	unheard := !came && c.Terms().Sentinel != 0 && r.ending != endWhole
	if failed := c.RecordEnd(r.status, came); failed || unheard || r.ending == endBroken {
		r.withdraw(r.here)
	}
	r.giveBack()
}

// end makes a reservation whose charge is released hold nothing more.
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

// withdraw takes back what was speculated about at.
func (r *Reservation) withdraw(at *cache) {
	if r.speculation.keys == nil || r.speculation.text {
		return
	}
	r.d.index.Withdraw(r.mv.scopes[at.scope], at.holder, *r.speculation.keys)
	r.d.send(Withdrawn, r.mv, at, *r.speculation.keys, 0)
}

// speculate expects the prompt to be cached where the request was sent, until the
// deadline or until the replica's events report it.
func (r *Reservation) speculate(at *cache, until time.Time) {
	if r.speculation.keys == nil || r.speculation.text {
		return
	}
	r.d.index.Speculate(r.mv.scopes[at.scope], at.holder, *r.speculation.keys, until)
	r.d.send(Speculated, r.mv, at, *r.speculation.keys, until.Sub(r.d.now()))
}

// Served moves the request that dec is about to the replica that really served
// it. What Envoy passed over to get to a later one of the list has failed.
func (d *Decider) Served(dec *Decision, addr string) {
	r := dec.Reservation
	if r == nil || r.here == nil || addr == r.here.replica.Addr || r.done.Load() {
		return
	}
	c := r.charge.Load()
	c.Release()
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
	terms.Sent, terms.Cached = now.UnixNano(), false
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
