package load

import (
	"math"
	"time"
)

// recentTime is the time in which what was sent falls to 1/e of its weight: long enough for tens of
// requests, short enough that a replica which gets too little is seen while it matters.
const recentTime = 20 * time.Second

// recent is what this router has sent to a cache lately, weighted by age. Both sums fade together, so
// that a decision computes one exponential for each candidate.
type recent struct {
	prefill, requests float64 // s of expected prefill, and in how many requests
	at                int64   // Unix ns
}

// add counts a request with so many seconds of prefill.
func (r *recent) add(seconds float64, now int64) {
	r.prefill, r.requests = r.of(now)
	r.prefill, r.requests, r.at = r.prefill+seconds, r.requests+1, now
}

// of returns the seconds of prefill and the requests.
func (r *recent) of(now int64) (prefill, requests float64) {
	left := math.Exp(-float64(now-r.at) / float64(recentTime))
	return r.prefill * left, r.requests * left
}
