package load

import (
	"math"
	"time"
)

// recentTime is the time in which what was sent falls to 1/e of its weight: long enough for tens of
// requests, short enough that a replica which gets too little is seen while it matters.
const recentTime = 20 * time.Second

// fadeEvery is the time between fadings, in which a weight falls by 1.6 %: decisions in between compute
// no exponential.
const fadeEvery = recentTime / 64

// recent is what this router has sent to a cache lately, weighted by age.
type recent struct {
	prefill, requests float64 // s of expected prefill, and in how many requests
	at                int64   // Unix ns of the latest fading
}

// add counts a request with so many seconds of prefill.
func (r *recent) add(seconds float64, now int64) {
	r.of(now)
	r.prefill, r.requests = r.prefill+seconds, r.requests+1
}

// of returns the seconds of prefill and the requests.
func (r *recent) of(now int64) (prefill, requests float64) {
	if age := now - r.at; age >= int64(fadeEvery) {
		left := math.Exp(-float64(age) / float64(recentTime))
		r.prefill, r.requests, r.at = r.prefill*left, r.requests*left, now
	}
	return r.prefill, r.requests
}
