package decision

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/internal/load"
	"warmroute/internal/sessions"
	"warmroute/prefixhash"
)

// Reservation holds one request's charge on an account, and its speculated prefix,
// until the request's stream ends. If the hint was withheld it has no charge, and holds the
// request's prompts until the serving replica is known. Any goroutine may call FirstToken and
// Release; only the request's stream calls Answered, Ended and Decider.Served.
type Reservation struct {
	d      *Decider
	charge atomic.Pointer[load.Charge]
	done   atomic.Bool
	status int    // the response's, 0 = not seen
	ending ending // the response's
	asked  bool   // it names a rank

	here        *holder // the holder that it was sent to
	mv          *View
	own         load.Charge // the first charge, so that a decision allocates once
	speculation speculation
	split       *Split         // nil = one replica does all
	work        *sessions.Work // nil: no request of the model is held
	would       *holder        // named by a withheld hint, until it is known which replica served; nil without work

	awaited int    // its place, if its answer is awaited
	seq     uint64 // of its decision; 0: its answer is not awaited
}

// speculation names the keys that a request is expected to leave in a cache.
type speculation struct {
	keys *[]prefixhash.Key // not reported before, pooled; nil = none
	past past              // for the histories of holders that report nothing
}

// begin counts the keys as cached at a replica until the deadline, or until the replica's
// events report them, or as part of its history.
func (s *speculation) begin(d *Decider, mv *View, at *holder, until time.Time) {
	s.past.begin(d, mv, at)
	if s.keys == nil || !at.reports() {
		return
	}
	d.index.Speculate(mv.scopes[at.scope], at.id, *s.keys, until)
	d.send(Prefix{Statement: Speculated, Keys: *s.keys, Lasts: until.Sub(d.now())}, mv, at)
}

// withdraw ends the speculation about a cache.
func (s *speculation) withdraw(d *Decider, mv *View, at *holder) {
	s.past.end(d, mv, false)
	if s.keys == nil {
		return
	}
	d.index.Withdraw(mv.scopes[at.scope], at.id, *s.keys)
	d.send(Prefix{Statement: Withdrawn, Keys: *s.keys}, mv, at)
}

// giveBack returns the keys to their pool.
func (s *speculation) giveBack() {
	s.past.giveBack()
	if s.keys != nil {
		speculated.Put(s.keys)
		s.keys = nil
	}
}

var speculated = sync.Pool{New: func() any { return new([]prefixhash.Key) }}

// FirstToken records that the first token has come, for callers that see it before KV
// events do. It reports whether this call was the first.
func (r *Reservation) FirstToken() bool {
	c := r.charge.Load()
	return c != nil && c.FirstToken()
}

// FirstTokenAt returns the time of the first token, zero if no event reported it.
func (r *Reservation) FirstTokenAt() time.Time {
	if c := r.charge.Load(); c != nil {
		return c.ReportedFirst()
	}
	return time.Time{}
}

// Session returns the number of the request's session, the same for all its requests, and the
// request's own in it, from 1 on; 0: no requests of its kind are held.
func (r *Reservation) Session() (number uint64, turn int) {
	if r.work == nil {
		return 0, 0
	}
	return r.work.Session, r.work.Turn
}

// order returns Decision.Order of a request.
func (r *Reservation) order(a *Ask) int64 {
	if r.work == nil || a.Priority > 0 {
		return 0
	}
	return r.work.Order
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
	if r.done.Swap(true) {
		return
	}
	r.work.End(r.d.now())
	if r.split != nil {
		r.split.over()
		r.split.observe()
	}
	c := r.charge.Load()
	if c == nil { // the hint was withheld
		if r.would != nil {
			r.speculation.past.begin(r.d, r.mv, r.would)
			r.speculation.past.end(r.d, r.mv, r.status < http.StatusBadRequest && r.ending != endBroken)
		}
		r.speculation.giveBack()
		return
	}
	r.d.awaited.ended(r, c.Alone())
	if r.asked {
		r.d.RankAnswered(r.here.replica.Addr, r.here.asks(), r.status)
	}
	came := c.Release()
	// A request that ends before the event that reports its first token was
	// refused, or cancelled, or failed after a status of 200: nothing will be
	// cached. If the event is only late, it reports the blocks a moment later.
	unheard := !came && c.Terms().Sentinel != 0 && r.ending != endComplete
	refused := c.RecordEnd(r.status, came) && !(r.status == 0 && r.ending == endComplete)
	r.speculation.past.end(r.d, r.mv, !refused)
	if refused || unheard || r.ending == endBroken {
		r.speculation.withdraw(r.d, r.mv, r.here)
	}
	c.Settle(!refused && r.ending != endBroken && (r.ending == endComplete || c.Looked(r.status, came)))
	r.speculation.giveBack()
}

// end empties a reservation whose charge is released.
func (r *Reservation) end() {
	if !r.done.Swap(true) {
		r.work.End(r.d.now())
		r.speculation.giveBack()
	}
}

// await returns a reservation without a charge, for a request whose hint is withheld: once it
// is known which replica served, its history has the prompts, and its desk the session. It returns
// nil if neither needs them.
func (d *Decider) await(a *Ask, mv *View, w *Work, work *sessions.Work) *Reservation {
	if a.Dry || work == nil && !d.recalls(a, mv) {
		return nil
	}
	to := mv.firstSilent()
	switch {
	case work != nil:
		to = &mv.holders[w.at[w.ranked[0]]]
	case a.Text != nil:
		to = &mv.holders[0]
	case to == nil:
		return nil
	}
	r := &Reservation{d: d, mv: mv, work: work}
	if work != nil {
		r.would, r.speculation.past.priced, r.speculation.past.work = to, true, work
	}
	r.speculation.past.of(a, mv, w, to)
	return r
}

// Served moves the request of dec to the replica that really served it. The replicas
// before it in the list have failed, because Envoy passed them over. For a withheld hint
// it records the prompts in the history, and where the session is, alone.
func (d *Decider) Served(dec *Decision, addr string) {
	r := dec.Reservation
	if r == nil || r.done.Load() {
		return
	}
	if r.here == nil {
		if at := r.mv.serving(addr, 0); at != nil && len(at.replica.Ranks) <= 1 {
			r.work.At(at.history)
			r.would = nil
			r.speculation.past.begin(d, r.mv, at)
			r.speculation.past.end(d, r.mv, true)
		}
		return
	}
	if addr == r.here.replica.Addr {
		return
	}
	if r.split != nil {
		r.split.over()
	}
	c := r.charge.Load()
	c.Release()
	c.Settle(false)
	r.speculation.withdraw(r.d, r.mv, r.here)
	at := r.mv.serving(addr, r.here.asks())
	if at == nil { // not a replica of this model: Envoy does not follow hints here
		r.end()
		return
	}
	if strings.Contains(dec.Chosen, addr) {
		c.Failed(d.now().UnixNano())
	}
	from, terms := r.here, c.Terms()
	if r.split != nil {
		terms = r.split.terms
	}
	terms.Cached, terms.Claimed, terms.Credited = false, 0, 0
	if at.scope != from.scope {
		terms.Sentinel = 0
	}
	r.put(new(load.Charge), at.account, terms)
	r.work.At(at.history)
	r.here = at
	if at.scope == from.scope {
		r.speculation.begin(d, r.mv, at, time.Unix(0, r.charge.Load().Terms().Due))
	} else {
		r.speculation.past.begin(d, r.mv, at)
	}
}
