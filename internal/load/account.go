package load

import (
	"sync/atomic"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/learned"
)

// Account counts the requests in flight on one KV cache, and learns its speed and
// health.
type Account struct {
	ledger *Ledger
	at     index.Holder
	holder atomic.Int32 // index.HolderID
	queued atomic.Bool  // it is in Ledger.changes

	flight              // of this router
	queue     []*Charge // of these, the awaiting, in the order of the charges; Ledger.Lock guards it
	sentinels sentinels // charges by the blocks that their first tokens will store
	others    others    // requests of other routers in flight
	scraped   scraped   // requests that no router sent, from scraped metrics

	pace   // its learned speed
	health // its failures in a row
	belief // in its events
	splits // its part in split requests
	below  // the GPU: how long blocks take to be loaded, and how many are there
}

// flight counts one router's requests on one cache, of which each Charge is put once, and taken
// off once.
type flight struct {
	inFlight atomic.Int64   // requests, each as often as it has answers
	awaiting atomic.Int64   // requests before their first token
	apart    atomic.Int64   // policy.Load.Apart
	pending  atomic.Int64   // ns of expected prefill of the awaiting
	live     atomic.Int64   // context tokens of the requests in flight
	sent     atomic.Int64   // requests charged so far
	work     atomic.Int64   // ns of prefill charged so far
	placed   learned.Fading // blocks sent there lately; Ledger.Lock guards it
	recent   recent         // guarded by Ledger.Lock
}

// put adds a request, and returns how many are in flight and how many were ever put.
func (f *flight) put(t *Terms) (inFlight, order int64) {
	f.awaiting.Add(1)
	if t.Leg || t.From != nil {
		f.apart.Add(1)
	}
	f.pending.Add(t.Expected)
	f.live.Add(t.context())
	f.work.Add(t.Expected)
	return f.inFlight.Add(t.weight()), f.sent.Add(1)
}

// prefilled takes off what ends with the first token.
func (f *flight) prefilled(t *Terms) {
	f.awaiting.Add(-1)
	if t.From != nil {
		f.apart.Add(-1)
	}
	f.pending.Add(-t.Expected)
}

// ended takes off the rest.
func (f *flight) ended(t *Terms) {
	f.inFlight.Add(-t.weight())
	if t.Leg {
		f.apart.Add(-1)
	}
	f.live.Add(-t.context())
}

// InFlight returns the number of requests in flight; one for n answers counts n times, as
// replicas count it.
func (f *flight) InFlight() int { return int(f.inFlight.Load()) }

// Awaiting returns the number of requests whose first token has not come.
func (f *flight) Awaiting() int { return int(f.awaiting.Load()) }

// Pending returns the expected prefill of the awaiting requests in seconds.
func (f *flight) Pending() float64 { return float64(max(0, f.pending.Load())) / 1e9 }

// Live returns the number of context tokens in flight.
func (f *flight) Live() int64 { return f.live.Load() }

// Placed returns the blocks sent there lately, weighted by age. Ledger.Lock is held.
func (f *flight) Placed(now int64) float64 { return f.placed.Of(now) }

// SetID records the index's number of the holder.
func (a *Account) SetID(id index.HolderID) { a.holder.Store(int32(id)) }

// Missed records an answer that found less than the holder's events had reported.
func (a *Account) Missed() { a.missed.Store(a.ledger.now().UnixNano()) }

// SetSilent records whether the holder's KV events fail to arrive. It reports whether that has
// changed.
func (a *Account) SetSilent(silent bool) (changed bool) {
	if a.silent.Swap(silent) == silent {
		return false
	}
	if silent {
		a.ceased.Store(a.ledger.now().UnixNano())
	}
	return true
}

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
	s.Failing = a.Failing(now)
	s.Speed, s.Loading = a.Speed(), a.loading(now)
	s.Recent, s.RecentRequests = a.recent.of(now, &a.ledger.factor)
	return s
}

// Failing reports whether the replica is a last resort, for this router or another one.
func (a *Account) Failing(now int64) bool {
	return a.health.failing(now) || now < a.others.failing.Load()
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
