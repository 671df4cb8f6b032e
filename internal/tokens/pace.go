package tokens

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// ErrTooSlow reports that no replica can return a request's token ids within the
// budget: the body is longer than any body that was answered in that time. It matches
// ErrNone.
var ErrTooSlow = fmt.Errorf("a replica's answer would come too late: %w", ErrNone)

const (
	// paceBytes is the smallest body from which a pace is learned: a short body takes
	// the time of the round trip.
	paceBytes = 8 << 10
	// paceShare is the weight of a new measurement: about five of them count.
	paceShare = 0.2
	// paceFor is how long a measurement excludes long bodies. After it one is sent,
	// as a new measurement.
	paceFor = 30 * time.Second
	// brokenPause is the pause after a broken answer; it doubles with each further
	// one up to brokenRest.
	brokenPause = time.Second
	brokenRest  = time.Minute
	// mostPaces bounds the replicas' paces: beyond it those without a question under
	// way are forgotten.
	mostPaces = 8192
)

// paces has the speed of replicas' answers, by their URLs, and the number of
// questions that each has not answered yet.
type paces struct {
	mu sync.Mutex // held for a few map operations
	of map[string]*pace
}

type pace struct {
	rate    float64 // body bytes per second; 0: not known
	at      time.Time
	asking  int
	broken  int       // successive broken answers
	until   time.Time // the end of the pause after them
	shunned bool      // its ids were contradicted, and have not been confirmed since
}

func (p *paces) get(url string) *pace {
	if p.of == nil {
		p.of = map[string]*pace{}
	}
	one := p.of[url]
	if one == nil {
		if len(p.of) >= mostPaces {
			maps.DeleteFunc(p.of, func(_ string, one *pace) bool { return one.asking == 0 })
		}
		one = &pace{}
		p.of[url] = one
	}
	return one
}

// begin counts a question to the replica; end takes it back and learns from it.
func (p *paces) begin(url string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.get(url).asking++
}

func (p *paces) end(url string, size int, took time.Duration, now time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.get(url)
	one.asking--
	switch {
	case errors.Is(err, errBroken):
		one.until = now.Add(min(brokenRest, brokenPause<<min(one.broken, 10)))
		one.broken++
	case err == nil:
		one.broken = 0
	}
	var refused *RefusedError
	if size < paceBytes || took <= 0 || errors.As(err, &refused) {
		return
	}
	// A late answer takes longer than this.
	rate := float64(size) / took.Seconds()
	switch {
	case one.rate == 0 || now.Sub(one.at) > paceFor:
		one.rate = rate
	case err == nil || rate < one.rate:
		one.rate += paceShare * (rate - one.rate)
	}
	one.at = now
}

// start is the endpoint at which the search for one to ask begins: that of the replica which the
// request will probably go to (own), else the one whose turn it is.
type start struct {
	at  int
	own bool
}

// choose returns the replica to ask about a body of this size, of those with /render if there are any:
// /tokenize takes parts of a body, so its time does not follow from the size. Among the
// replicas that may answer within the budget it prefers the request's own, then the fewest questions
// under way, then the least load of its own, then the turn. It does not ask a replica during the
// pause after broken answers; without a budget it asks such a replica last. A replica whose
// ids were contradicted is asked without a budget alone.
func (p *paces) choose(endpoints []Endpoint, size int, budget time.Duration, now time.Time, from start) (best Endpoint, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asking, resting, found := 0, false, false
	render := slices.ContainsFunc(endpoints, func(e Endpoint) bool { return e.Render })
	err = ErrTooSlow
	for i := range endpoints {
		e := endpoints[(from.at+i)%len(endpoints)]
		one := p.get(e.URL)
		slow := one.rate > 0 && now.Sub(one.at) <= paceFor && float64(size) > one.rate*budget.Seconds()
		if render && (!e.Render || budget > 0 && size >= paceBytes && slow) {
			continue
		}
		rests := now.Before(one.until)
		if (rests || one.shunned) && budget > 0 {
			err = errResting
			continue
		}
		if from.own && i == 0 {
			return e, nil
		}
		better := one.asking < asking || one.asking == asking && e.Busy < best.Busy
		if !found || resting && !rests || resting == rests && better {
			best, found, asking, resting = e, true, one.asking, rests
		}
	}
	if found {
		err = nil
	}
	return best, err
}

// shun makes requests pass over a replica, or no longer.
func (p *paces) shun(url string, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.get(url).shunned = on
}

// errResting reports that the replicas that could answer are in a pause.
var errResting = fmt.Errorf("the replicas' last answers were broken: %w", ErrNone)
