package load

import (
	"math"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// failStreak is the number of failures in a row that make a replica a last resort.
	// A single failure is often the request's own.
	failStreak = 3
	// failPenalty is the first time as a last resort. Every further failure doubles
	// it, up to failPenaltyMost.
	failPenalty     = time.Second
	failPenaltyMost = 30 * time.Second
	// probeFor is how long a last resort whose time is over has one request alone. The access log tells
	// within this time if it failed at once.
	probeFor = 300 * time.Millisecond
	// tooFast is the share of its expected prefill before which a request that
	// ended without first token counts as refused, and tooFastLeast the least
	// time: no replica answers in less than an engine step.
	tooFast      = 0.25
	tooFastLeast = 5 * time.Millisecond
)

// health counts failures in a row. A replica that fails at once never has
// anything in flight: without this it would look idle and get everything.
type health struct {
	streak atomic.Int32
	until  atomic.Int64 // Unix ns until which it is a last resort
	down   atomic.Int64 // Unix ns until which it counts as down
}

const (
	// downFor is how long a replica counts as down that was not reached: longer than it takes until its
	// health tells.
	downFor = 5 * time.Second
	// forGood is health.down of one that has left.
	forGood = math.MaxInt64
)

// Down reports whether the replica has left; or was not reached, broke off or answered 503 a moment ago,
// and has served nothing since.
func (h *health) Down(now time.Time) bool { return now.UnixNano() < h.down.Load() }

// Broke records that the replica was not reached, broke off or answered 503.
func (a *Account) Broke() { a.health.downUntil(a.ledger.now().Add(downFor).UnixNano()) }

func (h *health) downUntil(ns int64) {
	if was := h.down.Load(); was != forGood {
		h.down.CompareAndSwap(was, ns)
	}
}

func (h *health) failing(now int64) bool { return now < h.until.Load() }

func (h *health) failed(now int64) {
	n := h.streak.Add(1)
	if n < failStreak {
		return
	}
	penalty := min(failPenaltyMost, failPenalty<<min(n-failStreak, 5))
	h.until.Store(now + int64(penalty))
}

// probed counts a request that is sent there.
func (h *health) probed(now int64) {
	if h.streak.Load() >= failStreak && now >= h.until.Load() {
		h.until.Store(now + int64(probeFor))
	}
}

func (h *health) succeeded() {
	h.streak.Store(0)
	h.downUntil(0)
	h.until.Store(0)
}

func (a *Account) failed(now int64) {
	a.health.failed(now)
	a.changed()
}

func (a *Account) succeeded() {
	told := a.health.until.Load() != 0
	a.health.succeeded()
	if told {
		a.changed()
	}
}

// Failure reports whether a response's status shows that a replica has failed. 501 is vLLM's answer
// to what it cannot do, and 504 is Envoy's, of which a long answer may be the cause.
func Failure(status int) bool {
	return status >= http.StatusInternalServerError && status != http.StatusNotImplemented && status != http.StatusGatewayTimeout
}

// Logged counts a request's end by Envoy's access log.
func (a *Account) Logged(failed bool) {
	if failed {
		a.failed(a.ledger.now().UnixNano())
		return
	}
	a.succeeded()
}

// LastResort returns how many requests have failed in a row, if they are so many that the replica
// is or was a last resort and has served none since; 0 otherwise.
func (h *health) LastResort() int {
	if n := h.Failures(); n >= failStreak {
		return n
	}
	return 0
}

// Failures returns the number of requests that have failed in a row.
func (h *health) Failures() int { return int(h.streak.Load()) }
