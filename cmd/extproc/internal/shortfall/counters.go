package shortfall

import "time"

// counters compares claims with the replica's counters.
//
// A replica counts a hit when it starts a request, the router a claim when the request has
// ended. So the claims of a moment are compared with a page that was read later, and there is
// credit for the claims of requests in flight: their hits may be on that page already.
type counters struct {
	suspicion
	noted  Reading   // the claims of the last moment, for comparison with a later page
	at     time.Time // that moment
	judged Reading   // the last compared reading, with its page's hits
	pages  int       // in a row with too much missed
}

// look takes a reading at now, and reports whether the suspicion changed.
func (c *counters) look(now time.Time, r Reading) (changed bool) {
	switch {
	case r.Page.IsZero():
		return false
	case c.at.IsZero():
		c.noted, c.judged, c.at = r, r, now
		return false
	case !r.Page.After(c.at):
		return false
	}
	then := c.noted
	then.Hits, then.Queries = r.Hits, r.Queries
	// The page may have the hits of all requests that had not ended at that moment, and of all since.
	c.take(then.since(c.judged), leastShare*(r.Open+r.Predicted-then.Predicted))
	c.judged, c.noted, c.at = then, r, now
	if c.pages++; c.since.heads < doubtful || !c.since.counts() || !c.misses() {
		c.pages = 0
	}
	return c.settle(c.pages > 1) // a second page: not the moment between two counters
}
