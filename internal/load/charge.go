package load

import (
	"net/http"
	"sync/atomic"
)

// Terms are the expected costs of a request.
type Terms struct {
	Sent     int64  // Unix ns
	Due      int64  // Unix ns by which its first token counts as come at the latest
	Model    int64  // ns of modelled prefill on a replica of speed 1
	Expected int64  // ns of expected prefill
	Wait     int64  // ns until the first token is expected
	Tokens   int64  // context
	Claimed  int64  // tokens of the prompts that the holder's events report, in full blocks before the last token
	Sentinel uint64 // content of the prompt's last full block, 0 = no event reports its first token
	Cached   bool   // the replica's events are received, and this request stores no block
	Guessed  bool   // the replica reports no blocks: any part of the prompt may be cached there
}

// guess returns the speed that the request was charged with.
func (t *Terms) guess() float64 { return float64(t.Expected) / float64(max(1, t.Model)) }

// soonest returns the shortest time, in ns, in which a request may end without a first
// token and not count as failed.
func (t *Terms) soonest() int64 {
	if t.Guessed {
		return int64(tooFastLeast)
	}
	return max(int64(tooFast*float64(t.Expected)), int64(tooFastLeast))
}

// Charge is one request's weight on one account. Only its state changes after it
// is put.
type Charge struct {
	account *Account
	terms   Terms
	seq     int64 // order of charges
	state   atomic.Int32
	settled atomic.Bool // its claim has ended
}

const (
	chargeNone int32 = iota
	chargeAwaiting
	chargeDecoding
	chargeDone
)

// Put makes an unused charge count on a. Ledger.Lock is held.
func (c *Charge) Put(a *Account, t Terms) {
	c.account, c.terms = a, t
	a.ledger.seq++
	c.seq = a.ledger.seq
	a.scraped.raise(a.inFlight.Add(1) + a.others.requests.Load())
	a.awaiting.Add(1)
	a.pending.Add(t.Expected)
	a.live.Add(t.Tokens)
	a.claims.open.Add(t.Claimed)
	a.sent.Add(1)
	a.work.Add(t.Expected)
	c.state.Store(chargeAwaiting)
	a.queue = append(a.queue, c)
	if t.Sentinel != 0 && !a.sentinels.watch(c) {
		c.terms.Sentinel = 0
	}
	a.changed()
}

// Account returns the charged account.
func (c *Charge) Account() *Account { return c.account }

// Terms returns the terms of the charge. Sentinel is 0 if the account had no room for
// one more sentinel.
func (c *Charge) Terms() Terms { return c.terms }

// Awaiting reports whether the first token is still to come.
func (c *Charge) Awaiting() bool { return c.state.Load() == chargeAwaiting }

// FirstToken takes the prefill off: the first token has come, or must have come. It
// reports whether this call was the first.
func (c *Charge) FirstToken() bool {
	if !c.state.CompareAndSwap(chargeAwaiting, chargeDecoding) {
		return false
	}
	c.account.awaiting.Add(-1)
	c.account.pending.Add(-c.terms.Expected)
	c.account.changed()
	return true
}

// Release takes the request off the account, once. It reports whether its first
// token had come before.
func (c *Charge) Release() (came bool) {
	came = !c.FirstToken()
	if !c.state.CompareAndSwap(chargeDecoding, chargeDone) {
		return true
	}
	c.account.inFlight.Add(-1)
	c.account.live.Add(-c.terms.Tokens)
	c.account.sentinels.unwatch(c)
	c.account.changed()
	return came
}

// RecordEnd counts the request's end and reports whether it failed. status is the
// response's, 0 if it was not seen; came reports whether the first token had come.
func (c *Charge) RecordEnd(status int, came bool) (failed bool) {
	a := c.account
	now := a.ledger.now().UnixNano()
	switch {
	case status >= http.StatusInternalServerError:
		a.failed(now)
		return true
	case status >= http.StatusBadRequest: // the client's error
		return true
	case status > 0, came:
		a.succeeded()
	case c.terms.Cached: // one token from the cache may take less than any bound, and no event distinguishes it from a failure
	case now-c.terms.Sent < c.terms.soonest():
		a.failed(now)
		return true
	}
	return false
}

// Failed counts a failure that the response's status does not show.
func (c *Charge) Failed(now int64) { c.account.failed(now) }

// Noted records the expected cost and first-token time of the charge, in seconds, and
// the blocks that it will store, for later estimates. Ledger.Lock is held.
func (c *Charge) Noted(cost, wait float64, blocks int) {
	c.account.scraped.sent(cost, wait, int(c.terms.Tokens))
	if blocks > 0 {
		c.account.placed.add(blocks, c.terms.Sent)
	}
}
