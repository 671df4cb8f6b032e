package filter

import (
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/index"
)

// Ledger counts what this router has in flight on every KV cache. Requests are
// charged inside the decision and released when their stream ends.
type Ledger struct {
	now func() time.Time
	// deciding makes reading the loads, picking and charging one step. Ingest,
	// discovery, scraping and ending streams never take it.
	deciding sync.Mutex
	seq      int64    // charges so far; guarded by deciding
	loads    sync.Map // index.Holder → *Load
}

// NewLedger returns an empty ledger that reads the time from now; nil is
// time.Now.
func NewLedger(now func() time.Time) *Ledger {
	if now == nil {
		now = time.Now
	}
	return &Ledger{now: now}
}

// Of returns the load of h, which stays the same object until h is dropped.
func (l *Ledger) Of(h index.Holder) *Load {
	if v, ok := l.loads.Load(h); ok {
		return v.(*Load)
	}
	v, _ := l.loads.LoadOrStore(h, &Load{ledger: l})
	return v.(*Load)
}

// All yields every load, in no order.
func (l *Ledger) All() iter.Seq2[index.Holder, *Load] {
	return func(yield func(index.Holder, *Load) bool) {
		l.loads.Range(func(h, load any) bool { return yield(h.(index.Holder), load.(*Load)) })
	}
}

// Drop forgets a replica's loads. What is charged to them is released into the
// void. It returns the numbers of the KV caches that are gone.
func (l *Ledger) Drop(replica string) (gone []index.HolderID) {
	for h, load := range l.All() {
		if h.Replica == replica {
			l.loads.Delete(h)
			gone = append(gone, index.HolderID(load.holder.Load()))
		}
	}
	return gone
}

// Applied looks for first tokens in a batch that was applied to the index: the
// block that completes a request's prompt is published when the step ends that
// also gave its first token. vLLM stores the blocks of one request and step in
// one event, so only the last block of each event is looked up. It takes no
// lock, and learns the replica's speed without one: batches of one holder come
// from one goroutine at a time, in the order they were applied. Batches of
// different holders may come at once.
func (l *Ledger) Applied(b *index.Batch) {
	v, ok := l.loads.Load(b.Holder)
	if !ok {
		return
	}
	load := v.(*Load)
	if load.marked.Load() == 0 {
		return
	}
	now := l.now().UnixNano()
	for i := range b.Events {
		e := &b.Events[i]
		if e.Kind != index.Stored || e.Tier != index.TierGPU || len(e.Engine) == 0 {
			continue
		}
		if e.Content != nil {
			load.stored(uint64(e.Content[len(e.Content)-1]), now)
		} else {
			load.stored(e.Engine[len(e.Engine)-1], now)
		}
	}
}

// Load is what is in flight on one KV cache, and what was learned of it.
type Load struct {
	ledger   *Ledger
	holder   atomic.Int32 // index.HolderID
	inFlight atomic.Int64 // requests
	awaiting atomic.Int64 // requests before their first token
	pending  atomic.Int64 // ns of expected prefill of the awaiting
	live     atomic.Int64 // context tokens of the requests in flight
	marks                 // where first tokens are waited for
	pace                  // how fast it is
	health                // how it fails

	// Guarded by Ledger.deciding.
	queue   []*charge // in the order they were sent; those at the front first
	scraped scraped   // traffic that came around this router
	placed  placed    // what was sent there lately
}

// InFlight is the number of requests in flight.
func (l *Load) InFlight() int { return int(l.inFlight.Load()) }

// Awaiting is the number of requests whose first token has not come.
func (l *Load) Awaiting() int { return int(l.awaiting.Load()) }

// Pending is the expected prefill of the awaiting requests in seconds.
func (l *Load) Pending() float64 { return float64(max(0, l.pending.Load())) / 1e9 }

// ahead is Awaiting and Pending, less what the engine has done since the latest
// news of it where these come late: it worked through the queue in order, at its
// learned speed, from the last first token that is known of. Ledger.deciding is
// held.
func (l *Load) ahead(now int64) (awaiting int, seconds float64) {
	late := int64(l.news() * 1e9)
	if late == 0 {
		return l.Awaiting(), l.Pending()
	}
	left, free := int64(0), l.last.Load() // ns of work, and until when the engine is at work
	for _, c := range l.queue {
		if c.state.Load() != chargeAwaiting {
			continue
		}
		free = max(free, c.sent) + c.nanos + int64(stepTime*1e9*c.guess())
		switch {
		case c.mark != 0 && free < now-2*late:
			free = now + c.nanos // even late news would be here: it stands still
		case c.mark != 0:
			free = max(free, now-late) // had it come before, we would have heard
		}
		if free > now {
			awaiting++
			left += min(c.nanos, free-now)
		}
	}
	return awaiting, float64(left) / 1e9
}

// Live is the number of context tokens in flight.
func (l *Load) Live() int64 { return l.live.Load() }

// charge is one request's weight on one load. Only its state changes after it
// is made.
type charge struct {
	load   *Load
	seq    int64  // order of charges
	sent   int64  // Unix ns
	due    int64  // Unix ns by which its first token counts as come at the latest
	raw    int64  // ns of modelled prefill on a replica of speed 1
	nanos  int64  // ns of expected prefill
	tokens int64  // context
	mark   uint64 // content of the prompt's last full block, 0 = no event will tell
	cached bool   // the replica's events are heard, and this request stores no block
	state  atomic.Int32
}

const (
	chargeNone int32 = iota
	chargeAwaiting
	chargeDecoding
	chargeDone
)

// put makes c count. Ledger.deciding is held.
func (c *charge) put() {
	l := c.load
	l.ledger.seq++
	c.seq = l.ledger.seq
	l.scraped.peak = max(l.scraped.peak, l.inFlight.Add(1))
	l.awaiting.Add(1)
	l.pending.Add(c.nanos)
	l.live.Add(c.tokens)
	c.state.Store(chargeAwaiting)
	l.queue = append(l.queue, c)
	if c.mark != 0 && !l.watch(c) {
		c.mark = 0
	}
}

// first takes the prefill off: the first token has come, or must have. It
// reports whether this call was the first to say so.
func (c *charge) first() bool {
	if !c.state.CompareAndSwap(chargeAwaiting, chargeDecoding) {
		return false
	}
	c.load.awaiting.Add(-1)
	c.load.pending.Add(-c.nanos)
	return true
}

// release takes the request off the load, once. It reports whether its first
// token had come before.
func (c *charge) release() (came bool) {
	came = !c.first()
	if !c.state.CompareAndSwap(chargeDecoding, chargeDone) {
		return true
	}
	c.load.inFlight.Add(-1)
	c.load.live.Add(-c.tokens)
	c.load.unwatch(c)
	return came
}

// settle counts first tokens as come that no event tells of: of requests whose
// time is over, and, since engines prefill in the order of arrival, of those
// that stored no block and were sent before one whose first token was seen.
// Ledger.deciding is held.
func (l *Load) settle(now int64) {
	seen := l.latest.Load()
	kept, n := 0, 0
	for ; n < len(l.queue); n++ {
		c := l.queue[n]
		switch {
		case c.state.Load() != chargeAwaiting:
		case now >= c.due || c.mark == 0 && c.seq < seen:
			c.first()
		default:
			l.queue[kept] = c
			kept++
		}
		if c.seq > seen && kept > 0 {
			n++
			break // the rest came later, and is due later
		}
	}
	if n > kept {
		end := kept + copy(l.queue[kept:], l.queue[n:])
		clear(l.queue[end:])
		l.queue = l.queue[:end]
	}
}
