package shortfall

import "time"

// doubtful is the number of successive requests whose missed claims make a replica doubted
// at once, if they have different first blocks, and whose met claims make it believed again.
const doubtful = 10

// doubt compares claims with hits request by request, and so finds a replica that claims
// blocks it does not hold after a few requests, not minutes.
//
// A replica counts a hit when it starts a request, the router a claim when the request has
// ended. So doubt compares the claims of a moment with a page that was read later, and
// gives credit for the claims of requests in flight: their hits may be on that page
// already.
type doubt struct {
	noted   Reading   // the claims of the last moment, for comparison with a later page
	at      time.Time // that moment
	judged  Reading   // the last compared reading, with its page's hits
	begun   bool
	since   Reading // the start of the time in which too much was missed, if any
	missed  float64 // leastShare × claimed − hit tokens, never below minus the credit
	pages   int     // in a row with too much missed
	raised  bool
	proving Reading // the start of the time in which it may prove itself
}

// look takes a reading at now, and reports whether the doubt changed.
func (d *doubt) look(now time.Time, r Reading) (changed bool) {
	if r.Page.IsZero() {
		return false
	}
	if !d.begun {
		d.begun, d.noted, d.judged, d.since, d.proving, d.at = true, r, r, r, r, now
		return false
	}
	if !r.Page.After(d.at) {
		return false
	}
	then := d.noted
	then.Hits, then.Queries = r.Hits, r.Queries
	was := d.raised
	if d.raised {
		d.prove(then)
	} else {
		// The page may have the hits of all requests that had not ended at that moment,
		// and of all since.
		d.judge(then, leastShare*(r.Open+r.Predicted-then.Predicted))
	}
	d.judged, d.noted, d.at = then, r, now
	return d.raised != was
}

// judge adds up the missed claims, with at most so much credit. The limit is the claims of
// doubtful requests of mean size without any hit.
func (d *doubt) judge(then Reading, credit float64) {
	claimed := then.Predicted - d.judged.Predicted
	d.missed += leastShare*claimed - (then.Hits - d.judged.Hits)
	d.missed = max(d.missed, -credit)
	if d.missed <= 0 {
		d.since = then
	}
	requests := float64(then.Requests - d.since.Requests)
	if then.Heads-d.since.Heads < doubtful || !then.counts(d.since) || d.missed < doubtful*leastShare*(then.Predicted-d.since.Predicted)/requests {
		d.pages = 0
		return
	}
	if d.pages++; d.pages > 1 { // a second page: not the moment between two counters
		d.raised, d.missed, d.pages, d.proving = true, 0, 0, then
	}
}

// prove ends the doubt if the claims of doubtful requests were met.
func (d *doubt) prove(then Reading) {
	if then.Requests-d.proving.Requests < doubtful {
		return
	}
	if then.Hits-d.proving.Hits >= leastShare*(then.Predicted-d.proving.Predicted) {
		d.raised = false
	}
	d.proving = then
}
