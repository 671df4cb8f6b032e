package sessions

import (
	"slices"
	"time"

	"warmroute/internal/decision/history"
)

// mostSaved is the most seconds that a desk saves up for cold prompts, mostPaid the most that one of
// them costs when it comes.
const mostSaved, mostPaid = 20, 30

// fairWait is the wait after which a price is half, as a multiple of the seconds that all of the cache
// takes to be computed: so each prompt can be paid, and those that waited longest soonest.
const fairWait = 7

// returns is how many times the seconds that a session's context takes to be computed it counts as
// live after its answer.
const returns = 2

// deskLasts is how long a desk is kept that no request asks for: longer than it takes to save up, and
// than sessions stay live.
const deskLasts = time.Hour

// desk is a holder at which sessions work.
type desk struct {
	live  []*Session // at work here; working drops the others
	saved float64    // seconds of prefill that cold prompts may take from the others
	at    time.Time  // of saved
	size  int        // tokens, as the latest request was told; rate likewise
	rate  float64
	used  time.Time // by a request that has gone or may go there
}

// Seen is the work at a desk.
type Seen struct {
	Live    int `json:"live"`           // sessions
	Context int `json:"context_tokens"` // that they need to keep in the cache
	Size    int `json:"cache_tokens"`   // that it has room for
}

// Site is a holder that a request may be sent to.
type Site struct {
	Cache  *history.Cache // the model of its cache
	Cached int            // tokens of the prompt that it has
	Size   int            // tokens that its cache has room for; 0 = not known
	Rate   float64        // tokens of prefill in a second; 0 = not known
	State  interface {    // of the holder, as it is when asked; nil = it is up
		Down(now time.Time) bool // no held request goes there
	}
}

// up reports whether held requests may go there.
func (p *Site) up(now time.Time) bool { return p.State == nil || !p.State.Down(now) }

// left reports whether nobody works at the desk any more.
func (d *desk) left(now time.Time) bool {
	return now.Sub(d.used) > deskLasts && !slices.ContainsFunc(d.live, func(s *Session) bool { return s.open > 0 })
}

// known reports whether the site may hold back a request.
func (p *Site) known() bool { return p.Size > 0 && p.Rate > 0 }

// warm reports whether a cache has so much of a prompt that it never waits.
func warm(cached, tokens int) bool { return 2*cached >= tokens }

// save adds a share of the time that has passed.
func (d *desk) save(now time.Time, share float64) {
	if !d.at.IsZero() {
		d.saved = min(mostSaved, d.saved+share*max(0, now.Sub(d.at).Seconds()))
	}
	d.at = now
}

// add records that a session works at the desk.
func (d *desk) add(s *Session) {
	if !slices.Contains(d.live, s) {
		d.live = append(d.live, s)
	}
}

// working returns the sessions at work at the desk of c, and forgets the others.
func (d *desk) working(c *history.Cache, rate float64, now time.Time) []*Session {
	d.live = slices.DeleteFunc(d.live, func(of *Session) bool { return of.cache != c || !of.working(rate, now) })
	return d.live
}

// priceOf returns the seconds that a prompt pays for tokens of others after a wait.
func (p *Site) priceOf(tokens int, waited time.Duration) float64 {
	fair := fairWait * float64(p.Size) / p.Rate
	return min(mostPaid, float64(tokens)/p.Rate) / (1 + max(0, waited.Seconds())/fair)
}

// room returns the tokens that a session needs beyond what the others that are live leave free, the
// number of these, and the seconds that it takes from them where it needs any: for the tokens that it
// evicts, and for those that wait behind it in the engine's queue and are evicted there. Requests in
// flight make it wait for what it and they need above half of the cache.
func (d *desk) room(s *Session, r *Request, p *Site, now time.Time) (lacking, live int, price float64) {
	need, used, running := r.Tokens+r.Answer, 0, 0
	for _, of := range d.working(p.Cache, p.Rate, now) {
		if of == s {
			continue
		}
		used, live = used+of.holds(now), live+1
		if of.open > 0 {
			running += of.context
		}
	}
	if lacking = used + need - p.Size; lacking <= 0 {
		return 0, live, 0
	}
	waiting := min(need, running, max(0, running+need-p.Size/2))
	return lacking, live, p.priceOf(lacking+waiting, now.Sub(r.came))
}
