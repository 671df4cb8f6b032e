package sessions

import (
	"maps"
	"slices"
	"sync"
	"time"

	"warmroute/internal/decision/history"
	"warmroute/internal/decision/policy"
	"warmroute/prefixhash"
)

// mostKeys bounds the keys of all sessions: of about two thousand sessions of 120,000 tokens.
const mostKeys = 1 << 20

// Table knows the sessions of all models, and the requests that wait. See the package comment.
type Table struct {
	mu       sync.Mutex
	known    map[prefixhash.Key]*entry
	keys     int // of all sessions
	sessions int // that are not replaced
	list     Session
	named    map[name]*Session // the latest of each name
	desks    map[*history.Cache]*desk
	queues   map[string]*queue // by model
	number   uint64            // of the latest session or ticket
}

// New returns an empty table.
func New() *Table {
	t := &Table{known: map[prefixhash.Key]*entry{}, named: map[name]*Session{}, desks: map[*history.Cache]*desk{}, queues: map[string]*queue{}}
	t.list.newer, t.list.older = &t.list, &t.list
	return t
}

// Request is a request that may be held.
type Request struct {
	Model   string
	Prompt  history.Prompt // valid during the call
	Tokens  int
	Answer  int     // tokens of the answer, a guess
	Session uint64  // a hash of the id that a header gave it, 0 = none
	Sites   []Site  // where it may go, best first
	Fleet   uint64  // another number: there may be other sites
	Ticket  *Ticket // of an earlier decision on it
	MayHold bool
	Dry     bool // nothing is recorded; it is not held

	came time.Time // its first attempt
}

// Work is a session's request in flight.
type Work struct {
	of      *Table
	session *Session
	// Session is the session's number, the same for all its requests; Turn counts them from 1 on.
	Session uint64
	Turn    int
	// Idle is the time from the session's latest answer to the request's first attempt, Live whether the
	// session was live then. Of a session's first request they are zero.
	Idle time.Duration
	Live bool
	// Order is the request's place in the engine's queue, the lowest first: its first attempt in Unix
	// milliseconds. The order of a warm request is mostSaved before now, so that a cold prompt waits
	// for later warm ones, but not for ever.
	Order int64
	// Lacks is what the request would have waited for if it could; zero: nothing.
	Lacks Wait
	// Paid is the seconds that it has taken from the desk's bucket.
	Paid float64
}

// Admit decides where a request goes: to the site of the returned number, or nowhere yet, with
// the ticket that it waits for. full: it was refused because the queue is full.
func (t *Table) Admit(set *policy.Sessions, r *Request, now time.Time) (site int, w *Work, held *Ticket, full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(r.Prompt.Keys) == 0 {
		return 0, nil, nil, false
	}
	q := t.queue(r.Model)
	q.set = set
	q.expire(now)
	k := t.ticketOf(q, r)
	if r.came = now; k != nil {
		r.came = k.place.At
	}
	s, rewritten := t.continued(r.Prompt, nameOf(r), false)
	site, why := t.site(q, k, s, r, now)
	if site < 0 {
		if held, full = t.hold(q, k, s, r, why, now); held != nil {
			return -1, nil, held, full
		}
		site, why.Ahead = 0, q.ahead(k)+q.behind(k, now)
	}
	if r.Dry {
		return site, &Work{Lacks: why}, nil, false
	}
	idle, live := t.rested(s, r.came)
	w = t.send(s, rewritten, r, &r.Sites[site], now)
	w.Idle, w.Live, w.Lacks, w.Order = idle, live, why, r.came.UnixMilli()
	if k != nil {
		q.depart(k, now)
		t.callFirst(q, 0, now)
	}
	if warm(r.Sites[site].Cached, r.Tokens) {
		w.Order = min(w.Order, now.UnixMilli()-1000*mostSaved)
	}
	return site, w, nil, false
}

func (t *Table) queue(model string) *queue {
	q := t.queues[model]
	if q == nil {
		q = new(queue)
		t.queues[model] = q
	}
	return q
}

// ticketOf returns the ticket of a request, or one with the place of an earlier attempt with the same
// prompt; nil: it has none.
func (t *Table) ticketOf(q *queue, r *Request) *Ticket {
	if k := r.Ticket; k != nil && k.queue == q && q.holds(k) {
		return k
	}
	if i := q.keptOf(Place{Last: r.Prompt.Last(), Tokens: r.Tokens}); i >= 0 {
		return &Ticket{of: t, queue: q, place: q.kept[i].Place}
	}
	return nil
}

// site returns the site for a request; -1: it lacks room, as why tells.
func (t *Table) site(q *queue, k *Ticket, s *Session, r *Request, now time.Time) (at int, why Wait) {
	if k != nil && q.holds(k) && !slices.ContainsFunc(r.Sites, func(p Site) bool { return p.up(now) }) {
		return -1, Wait{Context: r.Tokens}
	}
	if first := &r.Sites[0]; warm(first.Cached, r.Tokens) || !first.known() {
		return 0, Wait{}
	}
	other := slices.IndexFunc(r.Sites, func(p Site) bool { return warm(p.Cached, r.Tokens) })
	at, why = t.fits(q.set, s, r, now)
	if at < 0 || q.ahead(k)+q.behind(k, now) > 0 {
		at = other
	}
	if at >= 0 {
		why = Wait{}
	}
	return at, why
}

// fits returns the site where the request takes least from others, and whose savings pay for it:
// where it fits it takes nothing. Of equal ones it is the best one, -1: there is none.
func (t *Table) fits(set *policy.Sessions, s *Session, r *Request, now time.Time) (int, Wait) {
	least, pays := Wait{Context: r.Tokens, Lacking: -1}, -1
	cheapest := 0.0
	for i := range r.Sites {
		p := &r.Sites[i]
		if !p.known() || !p.up(now) {
			continue
		}
		d := t.desk(p, now)
		d.save(now, set.Share)
		lacking, live, price := d.room(s, r, p, now)
		if least.Lacking < 0 || lacking < least.Lacking {
			least.Lacking, least.Live = lacking, live
		}
		if price <= d.saved && (pays < 0 || price < cheapest) {
			pays, cheapest = i, price
		}
	}
	return pays, least
}

// desk returns the desk of a holder whose size and speed are known. A new one takes the place of
// those that nothing has used for long: their holders may be gone.
func (t *Table) desk(p *Site, now time.Time) *desk {
	d := t.desks[p.Cache]
	if d == nil {
		maps.DeleteFunc(t.desks, func(_ *history.Cache, d *desk) bool { return d.left(now) })
		d = new(desk)
		t.desks[p.Cache] = d
		for s := t.list.newer; s != &t.list; s = s.newer {
			if s.cache == p.Cache { // other routers have sent it there
				d.add(s)
			}
		}
	}
	d.size, d.rate, d.used = p.Size, p.Rate, now
	return d
}

// hold puts a request into the queue, or refuses it; nil: it passes.
func (t *Table) hold(q *queue, k *Ticket, s *Session, r *Request, why Wait, now time.Time) (held *Ticket, full bool) {
	if !r.MayHold || r.Dry {
		return nil, false
	}
	if k == nil {
		t.number++
		k = &Ticket{of: t, queue: q, place: Place{r.Prompt.Last(), r.Tokens, now, t.number}}
	}
	k.why, k.answer, k.sites = why, r.Answer, append(k.sites[:0], r.Sites...)
	k.fleet = r.Fleet
	if !q.holds(k) { // it comes for the first time, or back
		full = q.set.Queue > 0 && q.ahead(k) >= q.set.Queue
		switch {
		case full && q.set.Full == policy.Pass:
			return nil, false
		case full:
			q.keep(k.place, now, false)
		default:
			k.prompt = history.Prompt{Keys: slices.Clone(r.Prompt.Keys), Marks: r.Prompt.Marks}
			if k.session = s; s == nil {
				k.session = new(Session)
			}
			k.session.ticket = k
			q.put(k, now)
		}
	}
	if k.ready == nil || k.called {
		k.ready, k.called = make(chan struct{}), false
	}
	return k, full
}

// send records that a request of s goes to a site, and pays for what it takes there.
func (t *Table) send(s *Session, rewritten bool, r *Request, p *Site, now time.Time) *Work {
	w := &Work{of: t}
	if p.known() && !warm(p.Cached, r.Tokens) {
		d := t.desk(p, now)
		_, _, price := d.room(s, r, p, now)
		w.Paid = min(d.saved, price)
		d.saved -= w.Paid
	}
	s = t.goes(s, rewritten, nameOf(r), r.Prompt, r.Tokens)
	s.context, s.cache = r.Tokens+r.Answer, p.Cache
	if p.known() { // room is asked of desks with a size and a speed alone
		t.desk(p, now).add(s)
	}
	t.forget()
	w.session, w.Session, w.Turn = s, s.number, s.turns
	return w
}

// goes returns the session of a prompt that is sent: s, or one that begins.
func (t *Table) goes(s *Session, rewritten bool, called name, p history.Prompt, size int) *Session {
	if s == nil || rewritten {
		s = t.begin(s)
	}
	if called != (name{}) {
		s.name, t.named[called] = called, s
	}
	t.take(s, p, size)
	t.use(s)
	s.turns++
	s.open++
	s.away = false
	return s
}

// rested returns the time from the latest answer of s until then, and whether s is live then.
func (t *Table) rested(s *Session, then time.Time) (idle time.Duration, live bool) {
	if s == nil {
		return 0, false
	}
	d := t.desks[s.cache]
	return max(0, then.Sub(s.answered)), d != nil && s.working(d.rate, then)
}

// See returns the work at the desk of a holder, whose size and speed are known; false: it has none.
func (t *Table) See(c *history.Cache, now time.Time) (v Seen, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.desks[c]
	if d == nil {
		return v, false
	}
	v.Size = d.size
	for _, s := range d.working(c, d.rate, now) {
		v.Live, v.Context = v.Live+1, v.Context+s.holds(now)
	}
	return v, true
}

// begin begins a session, which goes on from before, if there is such a one.
func (t *Table) begin(before *Session) *Session {
	s := new(Session)
	if before != nil {
		s.number, s.turns = before.number, before.turns
		t.replace(before, s)
	} else {
		t.number++
		s.number = t.number
	}
	t.sessions++
	return s
}

// At records that another holder has the request. A nil Work is of no session.
func (w *Work) At(c *history.Cache) {
	if w == nil {
		return
	}
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	s := w.session
	if w.Turn != s.turns || s.cache == c {
		return
	}
	s.cache = c
	if d := w.of.desks[c]; d != nil {
		d.add(s)
	}
}

// End records that the request has ended. A nil Work is of no session.
func (w *Work) End(now time.Time) {
	if w == nil {
		return
	}
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.session.open--
	w.session.answered = now
}

// Wake lets the first request of each queue be decided again if it may go, or if it knows another fleet
// (0: that does not count); of a model whose requests are no longer held, all. It returns the number of
// requests that wait.
func (t *Table) Wake(of func(model string) *policy.Sessions, fleet uint64, now time.Time) (waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for model, q := range t.queues {
		q.expire(now)
		if q.set = of(model); q.set.On() {
			t.callFirst(q, fleet, now)
		} else {
			q.empty()
		}
		waiting += len(q.tickets)
	}
	return waiting
}

// callFirst calls the first request of a queue if it may go, or if it knows another fleet; 0: any will do.
func (t *Table) callFirst(q *queue, fleet uint64, now time.Time) {
	k := q.first()
	if k == nil || k.called || q.behind(k, now) > 0 {
		return
	}
	if fleet != 0 && k.fleet != fleet {
		k.call()
		return
	}
	r := Request{Tokens: k.place.Tokens, Answer: k.answer, Sites: k.sites, came: k.place.At}
	for i := range k.sites {
		if k.sites[i].up(now) && warm(k.sites[i].Cache.Match(k.prompt, now), k.place.Tokens) {
			k.call()
			return
		}
	}
	if at, why := t.fits(q.set, k.session, &r, now); at >= 0 {
		k.call()
	} else {
		k.why = why
	}
}
