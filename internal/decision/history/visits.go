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
	from   string // that router
	prompt Prompt
	hold   Hold
	since  time.Time
	ended  func(now time.Time)
}

// visits are the requests of other routers in flight.
type visits struct {
	visiting sync.Mutex // taken before Cache.mu
	inFlight []visit    // in the order of their arrival
	dropped  bool       // none can end any more
}

// Arrived is Use for a request of another router. Left, Gone or the holder's departure ends it, and
// calls ended.
func (c *Cache) Arrived(from string, p Prompt, rest int, now time.Time, ended func(now time.Time)) {
	c.visiting.Lock()
	defer c.visiting.Unlock()
	if c.dropped {
		ended(now)
		return
	}
	old := max(0, len(c.inFlight)+1-mostVisits)
	for old < len(c.inFlight) && now.Sub(c.inFlight[old].since) > longestVisit {
		old++
	}
	if old > 0 {
		c.leave(old, true, now, func(*visit) bool { return true })
	}
	p.Keys = slices.Clone(p.Keys)
	c.inFlight = append(c.inFlight, visit{from, p, c.Use(p, rest, now), now, ended})
}

// Left is End for the first request of another router whose prompt has this last key.
func (c *Cache) Left(from string, last prefixhash.Key, computed bool, now time.Time) {
	c.visiting.Lock()
	defer c.visiting.Unlock()
	c.leave(1, computed, now, func(v *visit) bool {
		if v.from != from || v.prompt.Last() != last {
			return false
		}
		c.Expect(v.prompt, now.Add(linger))
		return true
	})
}

// leave ends the first requests of other routers of a kind.
func (c *Cache) leave(most int, computed bool, now time.Time, ends func(*visit) bool) {
	c.inFlight = slices.DeleteFunc(c.inFlight, func(v visit) bool {
		if most <= 0 || !ends(&v) {
			return false
		}
		most--
		c.End(v.prompt, v.hold, computed, now)
		v.ended(now)
		return true
	})
}

// Gone records that another router is gone, or that some of what it told was lost: its requests
// count as answered.
func (h *History) Gone(from string, now time.Time) {
	for _, c := range h.All {
		c.visiting.Lock()
		c.leave(len(c.inFlight), true, now, func(v *visit) bool { return v.from == from })
		c.visiting.Unlock()
	}
}
