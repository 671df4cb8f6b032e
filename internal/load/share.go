package load

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/index"
)

// Share counts the requests of one router in flight on one holder, as routers send it
// to each other. The zero Share counts none.
type Share struct {
	Requests int64 `json:"in_flight"`                // requests
	Awaiting int64 `json:"awaiting"`                 // of these, requests whose first token has not come
	Pending  int64 `json:"pending_ns"`               // ns of expected prefill of the awaiting
	Live     int64 `json:"live_tokens"`              // context tokens
	Sent     int64 `json:"-"`                        // requests charged so far
	Work     int64 `json:"-"`                        // ns of prefill charged so far
	Failing  int64 `json:"failing_for_ns,omitempty"` // ns for which it stays a last resort
}

// Share returns the requests of this router in flight on the holder.
func (a *Account) Share(now time.Time) Share {
	return Share{
		Requests: max(0, a.inFlight.Load()), Awaiting: max(0, a.awaiting.Load()), Pending: max(0, a.pending.Load()), Live: max(0, a.live.Load()),
		Sent: a.sent.Load(), Work: a.work.Load(), Failing: max(0, a.health.until.Load()-now.UnixNano()),
	}
}

// others sums the shares of other routers on one holder. Decisions read the sums
// without a lock.
type others struct {
	requests, awaiting, pending, live atomic.Int64
	failing                           atomic.Int64 // Unix ns until which another router counts it as failing

	mu  sync.Mutex // guards by
	by  map[string]Share
	due map[string]int64 // failing, by router
}

// SetShare replaces the share of the router peer on the holder.
func (a *Account) SetShare(peer string, s Share, now time.Time) {
	o := &a.others
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil {
		o.by, o.due = map[string]Share{}, map[string]int64{}
	}
	if s.Requests == 0 && s.Pending == 0 && s.Live == 0 && s.Awaiting == 0 && s.Failing == 0 {
		delete(o.by, peer)
		delete(o.due, peer)
	} else {
		o.by[peer] = s
		o.due[peer] = now.UnixNano() + s.Failing
	}
	var sum Share
	failing := int64(0)
	for p, s := range o.by {
		sum.Requests += s.Requests
		sum.Awaiting += s.Awaiting
		sum.Pending += s.Pending
		sum.Live += s.Live
		failing = max(failing, o.due[p])
	}
	o.requests.Store(sum.Requests)
	o.awaiting.Store(sum.Awaiting)
	o.pending.Store(sum.Pending)
	o.live.Store(sum.Live)
	o.failing.Store(failing)
	raise(&a.scraped.peak, a.inFlight.Load()+sum.Requests)
}

// Others returns the shares of other routers on the holder, by router.
func (a *Account) Others() map[string]Share {
	a.others.mu.Lock()
	defer a.others.mu.Unlock()
	return maps.Clone(a.others.by)
}

// SetUnreported sets the prefill in seconds that other routers have probably sent
// since their last messages.
func (l *Ledger) SetUnreported(seconds float64) { l.unreported.Store(seconds) }

// Unreported returns the last value of SetUnreported.
func (l *Ledger) Unreported() float64 { return l.unreported.Load() }

// changes collects the accounts that changed, for the messages to other routers.
type changes struct {
	mu     sync.Mutex // held for an append or a swap
	list   []*Account
	notify func()
}

// OnChange sets the function that is called after an account changed, from any
// goroutine. It must not block. Call OnChange once, before the first charge.
func (l *Ledger) OnChange(notify func()) { l.changes.Store(&changes{notify: notify}) }

// changed records that a must be sent to other routers.
func (a *Account) changed() {
	c := a.ledger.changes.Load()
	if c == nil || a.queued.Swap(true) {
		return
	}
	c.mu.Lock()
	c.list = append(c.list, a)
	c.mu.Unlock()
	c.notify()
}

// Changed yields the accounts that changed since the last call, in the memory of spare.
// It returns the memory to pass the next time.
func (l *Ledger) Changed(spare []*Account, yield func(h index.Holder, a *Account)) []*Account {
	c := l.changes.Load()
	if c == nil {
		return spare
	}
	c.mu.Lock()
	list := c.list
	c.list = spare[:0]
	c.mu.Unlock()
	for _, a := range list {
		a.queued.Store(false) // before it is read: later changes are sent again
		yield(a.at, a)
	}
	clear(list)
	return list
}

// Settle counts overdue first tokens on every account: a router without decisions would
// otherwise send them to other routers for ever.
func (l *Ledger) Settle() {
	now := l.now().UnixNano()
	for _, a := range l.All() {
		l.deciding.Lock()
		a.settle(now)
		l.deciding.Unlock()
	}
}
