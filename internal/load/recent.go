package load

import (
	"math"
	"time"
)

// recentTime is the time in which what was sent falls to 1/e of its weight: long enough for tens of
// requests, short enough that a replica which gets too little is seen while it matters.
const recentTime = 20 * time.Second

// era is the time after which the weights begin at 1 again.
const era = 32 * recentTime

// recent is what this router has sent to a cache lately. Instead of what is old losing weight, what is
// new gets more, e times as much every recentTime: so all replicas' sums have one factor, which a decision
// computes once.
type recent struct {
	prefill, requests float64 // s of expected prefill, and in how many requests, by their weights
	era               int64   // in which the weights are, counted from 1970 on
}

// factor is the weight of one age in an era.
type factor struct {
	age    int64 // ns
	weight float64
}

// of returns the weight of an age.
func (f *factor) of(age int64) float64 {
	if f.age != age || f.weight == 0 {
		f.age, f.weight = age, math.Exp(float64(age)/float64(recentTime))
	}
	return f.weight
}

// weight returns what a request counts that is sent now.
func (r *recent) weight(now int64, f *factor) float64 {
	if n := now/int64(era) - r.era; n > 0 {
		left := math.Exp(-float64(n) * float64(era/recentTime))
		r.prefill, r.requests, r.era = r.prefill*left, r.requests*left, r.era+n
	}
	return f.of(now - r.era*int64(era))
}

// add counts a request with so many seconds of prefill.
func (r *recent) add(seconds float64, now int64, f *factor) {
	w := r.weight(now, f)
	r.prefill, r.requests = r.prefill+seconds*w, r.requests+w
}

// of returns the seconds of prefill and the requests, those of a while ago for less.
func (r *recent) of(now int64, f *factor) (prefill, requests float64) {
	w := r.weight(now, f)
	return r.prefill / w, r.requests / w
}
