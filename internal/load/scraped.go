package load

import (
	"cmp"
	"sync/atomic"
	"time"

	"warmroute/internal/fleet"
	"warmroute/internal/learned"
)

// scraped counts the requests that a replica's metrics report and no router sent.
type scraped struct {
	at      time.Time     // of the last page
	peak    atomic.Int64  // most requests of this and other routers in flight since that page
	cost    learned.Ratio // s of expected prefill for each of ours
	tokens  learned.Ratio // of context for each of ours
	wait    float64       // expected first-token time of ours since then, s, summed
	waits   float64       // number of these times
	waiting float64       // requests of others that wait for their prefill
	running float64       // requests of others that decode
	ttft    fleet.Spent   // on the last page

	computed, prefill float64       // on the last page: tokens of prompts, and s of prefill
	rate              learned.Ratio // tokens computed in a second of prefill, for all routers
}

// raise makes a value at least n.
func raise(a *atomic.Int64, n int64) {
	for was := a.Load(); n > was && !a.CompareAndSwap(was, n); {
		was = a.Load()
	}
}

// typicalPrefill is the assumed cost of another sender's request before this router has
// sent any, in seconds: a thousand tokens on an 8B model.
const typicalPrefill = 0.035

// sentShare is the weight of a new request in the means of this router's.
const sentShare = 0.05

const (
	// rateShare is the weight of a page in Rate: a request's tokens are counted when it is scheduled,
	// and its seconds when it ends, up to minutes later.
	rateShare = 0.01
	// leastCounted are the seconds of prefill that show a rate.
	leastCounted = 0.5
)

// Rate returns the tokens of prompts that the replica computes in a second of prefill, by its own
// counters; 0 while they do not show it.
func (a *Account) Rate() float64 {
	if a.scraped.rate.Whole() < leastCounted {
		return 0
	}
	return a.scraped.rate.Of(0, 0)
}

// count learns Rate from a page; the first one, and one after a restart, only begin.
func (s *scraped) count(page *fleet.Load) {
	tokens, seconds := page.Computed()-s.computed, page.Prefill.Seconds-s.prefill
	if s.computed, s.prefill = page.Computed(), page.Prefill.Seconds; !s.at.IsZero() && min(tokens, seconds) >= 0 && tokens+seconds > 0 {
		s.rate.Add(tokens, seconds, rateShare)
	}
}

// sent records the cost and the context of a charge of this router.
func (s *scraped) sent(cost, wait float64, tokens int) {
	s.cost.Add(cost, 1, sentShare)
	s.tokens.Add(float64(tokens), 1, sentShare)
	s.wait += wait
	s.waits++
}

// foreign returns the prefill, in seconds, and the context tokens of requests that no
// router sent.
func (s *scraped) foreign() (seconds, tokens float64) {
	return s.waiting * s.cost.Of(typicalPrefill, 0), s.running * s.tokens.Of(0, 0)
}

// Scrape reads a new page. Requests in flight beyond the most that the routers had since
// the page before are foreign; so a burst of this router never counts as foreign. Without
// events of first tokens the histogram calibrates the speed, if most requests in it are
// this router's. Ledger.Lock is held.
func (a *Account) Scrape(page fleet.Load, events bool) {
	s := &a.scraped
	if !page.At.After(s.at) {
		if page.Running+page.Waiting == 0 { // the fleet has forgotten them: the page is too old
			s.waiting, s.running = 0, 0
		}
		return
	}
	s.waiting, s.running = 0, 0
	if total := page.Running + page.Waiting; total > 0 {
		others := max(0, total-float64(s.peak.Load()))
		s.waiting, s.running = others*page.Waiting/total, others*page.Running/total
	}
	sum, n := page.TTFT.Seconds-s.ttft.Seconds, page.TTFT.Requests-s.ttft.Requests
	if !events && !s.at.IsZero() && n > 0 && sum > 0 && s.waits > 0 && n <= 1.5*s.waits+1 {
		speed := cmp.Or(a.Speed(), 1)
		shown := sum / n / max(s.wait/s.waits, 1e-6)
		a.pace.learn(speed*learned.Near(shown, 1, paceJump), 1, speed)
	}
	s.count(&page)
	a.credit.scrape(page.Connector, s.at.IsZero())
	a.handover.count(page.MoveSeconds, page.LoadedTokens)
	if since := a.ceased.Load(); page.At.UnixNano() > since {
		a.ceased.CompareAndSwap(since, 0)
	}
	s.at = page.At
	s.peak.Store(a.inFlight.Load() + a.others.requests.Load())
	s.ttft, s.wait, s.waits = page.TTFT, 0, 0
}
