package decision

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"warmroute/internal/load"
	"warmroute/internal/sessions"
)

// Reservation holds one request's charge on an account, and its place in the holder's history,
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

	here  *holder // the holder that it was sent to
	mv    *View
	own   load.Charge // the first charge, so that a decision allocates once
	past  past
	split *Split         // nil = one replica does all
	work  *sessions.Work // nil: no request of the model is held
	would *holder        // named by a withheld hint, until it is known which replica served; nil without work

	awaited int    // its place, if its answer is awaited
	seq     uint64 // of its decision; 0: its answer is not awaited
}

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
			r.past.begin(r.d, r.mv, r.would, time.Time{})
			r.past.end(r.d, r.mv, r.status < http.StatusBadRequest && r.ending != endBroken)
		}
		r.past.giveBack()
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
	switch {
	case unheard || !came && r.ending == endBroken:
		r.past.lost = true
		r.past.expect(time.Time{})
	case came: // its events have told
		r.past.expect(time.Time{})
	case r.status != 0: // else its response is still to come
		r.past.expect(r.d.now().Add(eventGrace + time.Duration(c.Account().Lag()*1e9)))
	}
	r.past.end(r.d, r.mv, !refused)
	c.Settle(!refused && r.ending != endBroken && (r.ending == endComplete || c.Looked(r.status, came)))
	r.past.giveBack()
}

// end empties a reservation whose charge is released.
func (r *Reservation) end() {
	if !r.done.Swap(true) {
		r.work.End(r.d.now())
		r.past.giveBack()
	}
}

// await returns a reservation without a charge, for a request whose hint is withheld: once it
// is known which replica served, its history has the prompts, and its desk the session. It returns
// nil if neither needs them.
func (d *Decider) await(a *Ask, mv *View, w *Work, work *sessions.Work) *Reservation {
	var to *holder
	switch {
	case a.Dry:
	case work != nil:
		to = &mv.holders[w.at[w.ranked[0]]]
	case a.Text != nil:
		to = &mv.holders[0]
	case a.Prompts != nil:
		to = mv.firstSilent() // only the history tells what it has
	}
	if to == nil {
		return nil
	}
	r := &Reservation{d: d, mv: mv, work: work}
	if work != nil {
		r.would, r.past.priced, r.past.work = to, true, work
	}
	r.past.of(a, mv, w, to, a.answer(to))
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
			r.past.begin(d, r.mv, at, time.Time{})
			r.past.end(d, r.mv, true)
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
	r.past.end(d, r.mv, false)
	at := r.mv.serving(addr, r.here.asks())
	if at == nil { // not a replica of this model: Envoy does not follow hints here
		r.end()
		return
	}
	if strings.Contains(dec.Chosen, addr) {
		c.Retried(d.now().UnixNano())
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
	r.past.begin(d, r.mv, at, time.Unix(0, r.charge.Load().Terms().Due))
}
