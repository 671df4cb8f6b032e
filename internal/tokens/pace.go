package tokens

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrTooSlow reports that no replica can return a request's token ids within the
// budget: the body is longer than those answered in such a time before. It matches
// ErrNone.
var ErrTooSlow = fmt.Errorf("a replica's answer would come too late: %w", ErrNone)

const (
	// paceBytes is the least body a pace is learned from: what a short one takes is
	// the round trip.
	paceBytes = 8 << 10
	// paceShare is the weight of a new measurement: some five of them count.
	paceShare = 0.2
	// paceFor is how long a measurement excludes long bodies: after it one is
	// sent, which is a new measurement.
	paceFor = 30 * time.Second
)

// paces holds how fast replicas answer, by their URLs, learned from their answers,
// and how many questions each has not answered yet.
type paces struct {
	mu sync.Mutex // held for a few map operations
	of map[string]*pace
}

type pace struct {
	rate   float64 // body bytes per second; 0: not known
	at     time.Time
	asking int
}

func (p *paces) get(url string) *pace {
	if p.of == nil {
		p.of = map[string]*pace{}
	}
	one := p.of[url]
	if one == nil {
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
	var refused *RefusedError
	if size < paceBytes || took <= 0 || errors.As(err, &refused) {
		return
	}
	// An answer that did not come takes longer than this.
	rate := float64(size) / took.Seconds()
	switch {
	case one.rate == 0 || now.Sub(one.at) > paceFor:
		one.rate = rate
	case err == nil || rate < one.rate:
		one.rate += paceShare * (rate - one.rate)
	}
	one.at = now
}

// choose gives the replica to ask about a body of this size, among those that may
// answer within the budget: the one with the fewest questions under way, then the
// least load of its own, then whose turn it is.
func (p *paces) choose(endpoints []Endpoint, size int, budget time.Duration, now time.Time, turn int) (Endpoint, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	best, found := Endpoint{}, false
	asking := 0
	for i := range endpoints {
		e := endpoints[(turn+i)%len(endpoints)]
		one := p.get(e.URL)
		slow := one.rate > 0 && now.Sub(one.at) <= paceFor && float64(size) > one.rate*budget.Seconds()
		if !e.Render || budget > 0 && size >= paceBytes && slow {
			continue
		}
		if !found || one.asking < asking || one.asking == asking && e.Busy < best.Busy {
			best, found, asking = e, true, one.asking
		}
	}
	return best, found
}
