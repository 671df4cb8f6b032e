package load

import (
	"sync/atomic"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/learned"
)

// Account counts the requests in flight on one KV cache, and learns its speed and
// health.
type Account struct {
	ledger    *Ledger
	at        index.Holder
	holder    atomic.Int32 // index.HolderID
	inFlight  atomic.Int64 // requests, each as often as it has answers
	awaiting  atomic.Int64 // requests before their first token
	apart     atomic.Int64 // policy.Load.Apart
	pending   atomic.Int64 // ns of expected prefill of the awaiting
	live      atomic.Int64 // context tokens of the requests in flight
	sentinels sentinels    // charges by the blocks that their first tokens will store
	pace      pace         // its learned speed
	health    health       // its failures in a row
	others    others       // requests of other routers in flight
	sent      atomic.Int64 // requests charged so far
	work      atomic.Int64 // ns of prefill charged so far
	queued    atomic.Bool  // it is in Ledger.changes
	scraped   scraped      // requests that no router sent, from scraped metrics
	claims    claims       // cached tokens of prompts, by its events
	shares    atomic.Bool  // its events have told of a store that it shares
	doubted   atomic.Bool  // claims are disbelieved
	silent    atomic.Bool  // its events are not received
	handover  handover     // how long KV caches take to be moved here
	parts     parts        // what it has done in split requests
	loads     loads        // how long blocks below the GPU take to be loaded
	credit    credit       // how many of them are there, where events do not tell
	missed    atomic.Int64 // Unix ns of the last answer that found less than events had reported
	unheard   atomic.Int64 // requests since the last one whose answer was read

	// Ledger.Lock guards the fields below.
	queue  []*Charge      // in the order of the charges
	placed learned.Fading // blocks sent there lately
}

// Unheard counts a request, and returns the number since Heard.
func (a *Account) Unheard() int64 { return a.unheard.Add(1) }

// Heard records that the answer to a request was read.
func (a *Account) Heard() { a.unheard.Store(0) }

// Missed records an answer that found less than the holder's events had reported.
func (a *Account) Missed() { a.missed.Store(a.ledger.now().UnixNano()) }

// MissedSince reports whether there was such an answer after t.
func (a *Account) MissedSince(t time.Time) bool { return a.missed.Load() > t.UnixNano() }

// SetID records the index's number of the holder.
func (a *Account) SetID(id index.HolderID) { a.holder.Store(int32(id)) }

// InFlight returns the number of requests in flight; one for n answers counts n times, as
// replicas count it.
func (a *Account) InFlight() int { return int(a.inFlight.Load()) }

// Awaiting returns the number of requests whose first token has not come.
func (a *Account) Awaiting() int { return int(a.awaiting.Load()) }

// Pending returns the expected prefill of the awaiting requests in seconds.
func (a *Account) Pending() float64 { return float64(max(0, a.pending.Load())) / 1e9 }

// Live returns the number of context tokens in flight.
func (a *Account) Live() int64 { return a.live.Load() }

// Speed returns the actual over the modelled first-token time; 0 while nothing is
// known.
func (a *Account) Speed() float64 { return a.pace.speed() }

// SpeedAmong returns the speed that a decision uses: the median of the holders until this
// one's own clearly differs from it. A single replica does not move the median.
func (a *Account) SpeedAmong(own, median float64, now int64) float64 {
	return a.pace.among(own, median, now)
}

// SetSilent records whether the holder's KV events fail to arrive. It reports whether that has
// changed.
func (a *Account) SetSilent(silent bool) (changed bool) {
	if a.silent.Swap(silent) == silent {
		return false
	}
	if silent {
		a.ledger.silent.Add(1)
	} else {
		a.ledger.silent.Add(-1)
	}
	return true
}

// Silent reports whether the holder's KV events fail to arrive.
func (a *Account) Silent() bool { return a.silent.Load() }

// SharesStore reports whether the replica's events have told of blocks in a store that other
// replicas may read too.
func (a *Account) SharesStore() bool { return a.shares.Load() }

// Lag returns how many seconds after a first token its event arrives; 0 if that is
// less than an engine step.
func (a *Account) Lag() float64 { return a.pace.reportLag() }

// Placed returns the blocks sent there lately, weighted by age. Ledger.Lock is held.
func (a *Account) Placed(now int64) float64 { return a.placed.Of(now) }

// State reads the account as a decision does: the requests in flight of this router and of
// the others together. Ledger.Lock is held.
func (a *Account) State(now int64) (s policy.Load) {
	if len(a.queue) > 0 {
		a.settle(now)
	}
	o := &a.others
	s.InFlight = a.InFlight() + int(o.requests.Load())
	s.Apart = int(a.apart.Load())
	s.Awaiting, s.Pending = a.ahead(now)
	s.Awaiting += int(o.awaiting.Load())
	s.Pending += float64(o.pending.Load()) / 1e9
	foreign, tokens := a.scraped.foreign()
	s.Foreign, s.Live = foreign, float64(a.Live()+o.live.Load())+tokens
	s.Failing = a.health.failing(now) || now < o.failing.Load()
	s.Speed, s.Loading = a.Speed(), a.loading(now)
	return s
}

// ahead returns Awaiting and Pending without the work that the engine has done since
// its last event, if events come late. It assumes that the engine works through the
// queue in order, at its learned speed, from the last known first token on. Ledger.Lock
// is held.
func (a *Account) ahead(now int64) (awaiting int, seconds float64) {
	late := int64(a.Lag() * 1e9)
	if late == 0 {
		return a.Awaiting(), a.Pending()
	}
	left, free := int64(0), a.pace.last.Load() // ns of work, and the end of the engine's present work
	for _, c := range a.queue {
		if !c.Awaiting() {
			continue
		}
		t := &c.terms
		free = max(free, t.Sent) + t.Expected + int64(stepTime*1e9*t.guess())
		switch {
		case t.Sentinel != 0 && free < now-2*late:
			free = now + t.Expected // even late events would be here: the engine is stalled
		case t.Sentinel != 0:
			free = max(free, now-late) // an earlier one's event would have come
		}
		if free > now {
			awaiting++
			left += min(t.Expected, free-now)
		}
	}
	return awaiting, float64(left) / 1e9
}

// settle counts first tokens that no event reports. A request has its first token when
// it is due; a request that stores no block has it when a later request has, because
// engines prefill in the order of arrival. Ledger.Lock is held.
func (a *Account) settle(now int64) {
	seen := a.sentinels.latest.Load()
	kept, n := 0, 0
	for ; n < len(a.queue); n++ {
		c := a.queue[n]
		switch {
		case !c.Awaiting():
		case now >= c.terms.Due || c.terms.Sentinel == 0 && c.terms.From == nil && c.seq < seen:
			if c.FirstToken() && c.terms.Leg {
				c.Unload()
			}
		default:
			a.queue[kept] = c
			kept++
		}
		if c.seq > seen && kept > 0 {
			n++
			break // the rest came later, and is due later
		}
	}
	if n > kept {
		end := kept + copy(a.queue[kept:], a.queue[n:])
		clear(a.queue[end:])
		a.queue = a.queue[:end]
	}
}
