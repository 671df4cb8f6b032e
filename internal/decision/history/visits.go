package history

import (
	"slices"
	"sync"
	"time"

	"warmroute/prefixhash"
)

const (
	// mostVisits bounds the requests of other routers that are in flight on a holder.
	mostVisits = 1024
	// longestVisit is how long one of them counts as in flight if its end is not reported.
	longestVisit = 10 * time.Minute
	// linger is how long the prompt of one that has ended counts as coming.
	linger = 250 * time.Millisecond
)

// visit is a request of another router in flight.
type visit struct {
	prompt Prompt
	hold   Hold
	since  time.Time
}

// visits are the requests of other routers in flight.
type visits struct {
	visiting sync.Mutex // taken before Cache.mu
	inFlight []visit    // in the order of their arrival
}

// Arrived is Use for a request of another router. Left ends it.
func (c *Cache) Arrived(p Prompt, rest int, now time.Time) {
	p.Keys = slices.Clone(p.Keys)
	v := visit{p, c.Use(p, rest, now), now}
	c.visiting.Lock()
	defer c.visiting.Unlock()
	gone := 0
	for gone < len(c.inFlight) && (now.Sub(c.inFlight[gone].since) > longestVisit || len(c.inFlight)-gone >= mostVisits) {
		c.End(c.inFlight[gone].prompt, c.inFlight[gone].hold, true, now)
		gone++
	}
	c.inFlight = append(slices.Delete(c.inFlight, 0, gone), v)
}

// Left is End for the first request of another router whose prompt has this last key.
func (c *Cache) Left(last prefixhash.Key, computed bool, now time.Time) {
	c.visiting.Lock()
	defer c.visiting.Unlock()
	i := slices.IndexFunc(c.inFlight, func(v visit) bool { return v.prompt.Last() == last })
	if i < 0 {
		return
	}
	c.Expect(c.inFlight[i].prompt, now.Add(linger))
	c.End(c.inFlight[i].prompt, c.inFlight[i].hold, computed, now)
	c.inFlight = slices.Delete(c.inFlight, i, i+1)
}
