package filter

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/index"
	"warmroute/prefixhash"
)

// A Lease is what one request holds until its stream ends: its charge on a
// load, and the prefix speculated to arrive there. The zero Lease holds nothing.
// FirstToken and Release may be called by anybody; Answered, Ended and
// Decider.Served belong to the request's stream.
type Lease struct {
	d      *Decider
	charge atomic.Pointer[charge]
	done   atomic.Bool
	status int    // the response's, 0 = not seen
	ending ending // the response's

	here  *cache // where it was sent
	mv    *modelView
	own   charge // the first charge, so that a decision allocates once
	claim claim
}

// claim is what was speculated for a request, by scope.
type claim struct {
	keys *[]prefixhash.Key // of every prompt, pooled; nil = nothing
	text bool              // keys are the text chain, not a token chain
	new  int               // keys from here on were not reported yet
}

var claimed = sync.Pool{New: func() any { return new([]prefixhash.Key) }}

// FirstToken says that the first token has come, from better knowledge than KV
// events. It reports whether that was news.
func (l *Lease) FirstToken() bool {
	c := l.charge.Load()
	return c != nil && c.first()
}

// ending is how a response was seen to end.
type ending uint8

const (
	endUnseen ending = iota
	endWhole
	endBroken
)

// Answered notes the response's status.
func (l *Lease) Answered(status int) { l.status = status }

// Ended notes that the response came to its end, or that it broke off before.
// Where neither is seen, the replica's events are left to judge by.
func (l *Lease) Ended(whole bool) {
	l.ending = endBroken
	if whole {
		l.ending = endWhole
	}
}

// Release takes the request off the load and judges how it ended. Further calls
// do nothing.
func (l *Lease) Release() {
	c := l.charge.Load()
	if c == nil || l.done.Swap(true) {
		return
	}
	came := c.release()
	// A request that ends before the event that was to tell of its first token
	// was refused, or left, or failed behind a status of 200: nothing will be
	// cached. If the event is only late, it says the same a moment later.
	unheard := !came && c.mark != 0 && l.ending != endWhole
	if failed := l.judge(c, came); failed || unheard || l.ending == endBroken {
		l.withdraw(l.here)
	}
	l.giveBack()
}

// end makes a lease whose charge is released hold nothing more.
func (l *Lease) end() {
	if !l.done.Swap(true) {
		l.giveBack()
	}
}

func (l *Lease) giveBack() {
	if l.claim.keys != nil {
		claimed.Put(l.claim.keys)
		l.claim.keys = nil
	}
}

// judge counts how the request ended, and reports whether it failed.
func (l *Lease) judge(c *charge, came bool) (failed bool) {
	now := c.load.ledger.now().UnixNano()
	switch {
	case l.status >= http.StatusInternalServerError:
		c.load.failed(now)
		return true
	case l.status >= http.StatusBadRequest: // the client's fault
		return true
	case l.status > 0, came:
		c.load.succeeded()
	case c.cached: // one token from the cache may take less than any bound, and no event tells it from a failure
	case now-c.sent < max(int64(tooFast*float64(c.nanos)), int64(tooFastLeast)):
		c.load.failed(now)
		return true
	}
	return false
}

// withdraw takes back what was speculated about at.
func (l *Lease) withdraw(at *cache) {
	if l.claim.keys == nil || l.claim.text {
		return
	}
	l.d.index.Withdraw(l.mv.scopes[at.scope], at.holder, (*l.claim.keys)[l.claim.new:])
}

// speculate says that the prompt will be cached where the request was sent,
// until the deadline or until the replica's events tell.
func (l *Lease) speculate(at *cache, until time.Time) {
	if l.claim.keys == nil || l.claim.text {
		return
	}
	l.d.index.Speculate(l.mv.scopes[at.scope], at.holder, (*l.claim.keys)[l.claim.new:], until)
}

// Served moves the request that dec is about to the replica that really served
// it. What Envoy passed over to get to a later one of the list has failed.
func (d *Decider) Served(dec *Decision, addr string) {
	l := dec.Lease
	if l == nil || l.here == nil || addr == l.here.replica.Addr || l.done.Load() {
		return
	}
	c := l.charge.Load()
	c.release()
	l.withdraw(l.here)
	now := d.now()
	at := l.mv.find(addr, l.here.rank)
	if at == nil { // not a replica of this model: Envoy does not follow hints here
		l.end()
		return
	}
	if strings.Contains(dec.Destination, addr) {
		c.load.failed(now.UnixNano())
	}
	from := l.here
	next := &charge{load: at.load, sent: now.UnixNano(), due: now.UnixNano() + c.due - c.sent, raw: c.raw, nanos: c.nanos, tokens: c.tokens}
	if at.scope == from.scope {
		next.mark = c.mark
	}
	d.ledger.deciding.Lock()
	next.put()
	d.ledger.deciding.Unlock()
	l.charge.Store(next)
	l.here = at
	switch {
	case l.claim.text:
		d.learned.Observe(l.mv.tree, *l.claim.keys, at.holder, now)
	case at.scope == from.scope:
		l.speculate(at, time.Unix(0, next.due))
	}
}

// Speculator is told where prefixes are about to be. index.Index is one.
type Speculator interface {
	Speculate(s index.Scope, h index.HolderID, keys []prefixhash.Key, until time.Time)
	Withdraw(s index.Scope, h index.HolderID, keys []prefixhash.Key)
}
