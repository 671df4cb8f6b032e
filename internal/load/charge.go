package load

import (
	"net/http"
	"sync/atomic"
	"time"

	"warmroute/internal/decision/policy"
)

// Terms are the expected costs of a request.
type Terms struct {
	Sent     int64  // Unix ns
	Due      int64  // Unix ns by which its first token counts as come at the latest
	Model    int64  // ns of modelled prefill on a replica of speed 1
	Expected int64  // ns of expected prefill
	Wait     int64  // ns until the first token is expected
	Tokens   int64  // context
	Prompts  int64  // of the request; 0 = 1
	Answers  int64  // that are generated for each prompt, each in a context of its own once that is computed; 0 = 1
	Claimed  int64  // tokens of the prompts that the holder's events report, in full blocks before the last token
	Head     uint64 // key of the prompts' first block, with Claimed
	Sentinel uint64 // content of the prompt's last full block, 0 = no event reports its first token
	Cached   bool   // the replica's events are received, and this request stores no block
	Guessed  bool   // the replica reports no blocks: any part of the prompt may be cached there
	SplitTerms
	BelowTerms
}

// SplitTerms are those of a request of which two replicas have a part.
type SplitTerms struct {
	From   *Charge // the prefill on another replica whose KV cache is moved here: the event of Sentinel reports its arrival, not the first token; nil = none
	Leg    bool    // its KV cache is moved to another replica: its answer may come before the event of Sentinel
	Moved  int64   // tokens of From's prompt that are moved
	Moving int64   // ns that the move is expected to take, from the end of From
}

// BelowTerms are those of the tokens below the GPU.
type BelowTerms struct {
	Loading    int64        // ns that loading the prompt's tokens below the GPU is expected to take; 0 = there are none
	Loaded     int64        // these tokens, if they are all in one tier, else 0
	LoadedFrom policy.Place // their tier
	Credited   int64        // tokens below the GPU that it is expected to load, of places where no event tells when they are gone
	Behind     int64        // tokens of the prompt behind those on the GPU
	LoadsAhead int64        // ns until the loads of earlier requests are done
	LoadBound  bool         // it waits longer for loads than for prefill
	Unhindered bool         // nothing was queued ahead of the request: its first token shows the time of its load
}

const (
	// lateFactor and lateAdd bound the wait for what events should report: beyond this
	// multiple of the expected time an event was lost.
	lateFactor = 4
	lateAdd    = 2 * time.Second
)

// Late returns the time after which an event that is expected in wait seconds, with a lag
// of its reports, counts as lost.
func Late(wait, lag float64) time.Duration {
	return time.Duration((lateFactor*wait+lag)*1e9) + lateAdd
}

// DueIn sets when the first token is expected, in seconds from Sent, and when it counts as
// come: if an event reports it, with that lag, only when the event must have been lost.
func (t *Terms) DueIn(wait, lag float64) {
	t.Wait = int64(wait * 1e9)
	t.Due = t.Sent + t.Wait
	if t.Sentinel != 0 {
		t.Due = t.Sent + int64(Late(wait, lag))
	}
}

// mostWeight bounds what one request may say that it weighs: no replica runs more sequences
// at once.
const mostWeight = 1024

// weight returns the requests as which a replica counts the request: one for each answer.
func (t *Terms) weight() int64 {
	return min(max(1, t.Prompts)*max(1, t.Answers), mostWeight)
}

// context returns the tokens that the answers of the request read at each step.
func (t *Terms) context() int64 { return t.Tokens * min(max(1, t.Answers), mostWeight) }

// guess returns the speed that the request was charged with.
func (t *Terms) guess() float64 { return float64(t.Expected) / float64(max(1, t.Model)) }

// soonest returns the shortest time, in ns, in which a request may end without a first
// token and not count as refused.
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
	order   int64 // Account.sent when it was put, itself included
	alone   int64 // Account.sent, if no other request was in flight when it was put; 0: one was
	state   atomic.Int32
	settled atomic.Bool  // its claim has ended
	first   atomic.Int64 // Unix ns at which an event reported the first token, 0 = none did
	arrived atomic.Int64 // the same of the moved KV cache, with Terms.From
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
	a.health.probed(t.Sent)
	a.ledger.seq++
	c.seq = a.ledger.seq
	inFlight, order := a.put(&t)
	inFlight += a.others.requests.Load()
	raise(&a.scraped.peak, inFlight)
	a.claims.open.Add(t.Claimed)
	if c.order = order; inFlight == t.weight() && a.scraped.waiting+a.scraped.running == 0 {
		c.alone = order
	}
	if t.Loading > 0 {
		a.loads.until = max(a.loads.until, t.Sent) + t.Loading
	}
	c.state.Store(chargeAwaiting)
	a.queue = append(a.queue, c)
	if t.Sentinel != 0 && !a.sentinels.watch(c) {
		c.terms.Sentinel = 0
	}
	a.changed()
}

// unchargedTime is the time for which a request that is not charged may be anywhere.
const unchargedTime = time.Minute

// Alone reports whether no other request is known to have been in flight on the account, from
// the charge until now.
func (c *Charge) Alone() bool {
	a := c.account
	return c.alone != 0 && a.sent.Load() == c.alone && a.others.requests.Load() == 0 &&
		a.ledger.uncharged.Load() < c.terms.Sent-int64(unchargedTime)
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
	c.account.prefilled(&c.terms)
	c.account.changed()
	return true
}

// ReportedFirst returns when an event reported the first token, zero if none did.
func (c *Charge) ReportedFirst() time.Time {
	return timeOf(&c.first)
}

// ReportedArrival returns when an event reported that the KV cache of Terms.From was there,
// zero if none did.
func (c *Charge) ReportedArrival() time.Time { return timeOf(&c.arrived) }

func timeOf(ns *atomic.Int64) time.Time {
	if at := ns.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// Release takes the request off the account, once. It reports whether its first
// token had come before.
func (c *Charge) Release() (came bool) {
	came = c.Unload()
	c.account.sentinels.unwatch(c)
	return came
}

// Unload is Release for a request whose event may still come, and is watched for until
// Release.
func (c *Charge) Unload() (came bool) {
	came = !c.FirstToken()
	if !c.state.CompareAndSwap(chargeDecoding, chargeDone) {
		return true
	}
	c.account.ended(&c.terms)
	c.account.changed()
	return came
}

// RecordEnd counts the request's end and reports whether it was refused: the replica has not
// computed its prompt. status is the response's, 0 if it was not seen; came reports whether the
// first token had come. Without either, an early end shows a refusal, and nothing of the replica.
func (c *Charge) RecordEnd(status int, came bool) (refused bool) {
	a := c.account
	now := a.ledger.now().UnixNano()
	switch {
	case Failure(status):
		if status == http.StatusServiceUnavailable { // Envoy's, too
			a.Broke()
		}
		if c.terms.Leg || !a.ledger.logs(now) {
			a.failed(now)
		}
		return true
	case status >= http.StatusBadRequest: // the client's error
		return true
	case status > 0, came:
		a.succeeded()
		return false
	}
	// One token from the cache may take less than any bound.
	return !c.terms.Cached && now-c.terms.Sent < c.terms.soonest()
}

// RetriedWithin is the longest time in which a replica that another one replaces has failed: it
// refused or broke the connection, or it was not reached within the second that Envoy's generated
// clusters wait. After longer, Envoy's timeout for one try may have ended, which shows no failure.
const RetriedWithin = 1500 * time.Millisecond

// Retried counts a failure that an answer of another replica shows, unless Envoy's access log tells of it.
func (c *Charge) Retried(now int64) {
	if now-c.terms.Sent <= int64(RetriedWithin) && !c.account.ledger.logs(now) {
		c.account.failed(now)
	}
}

// Noted records the expected cost and first-token time of the charge, in seconds, and
// the blocks that it will store, for later estimates. Ledger.Lock is held.
func (c *Charge) Noted(cost, wait float64, blocks int) {
	c.account.scraped.sent(cost, wait, int(c.terms.Tokens))
	c.account.recent.add(cost, c.terms.Sent, &c.account.ledger.factor)
	c.account.placed.Add(float64(max(0, blocks)), c.terms.Sent)
}
