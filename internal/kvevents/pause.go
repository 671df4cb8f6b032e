package kvevents

import (
	"math"
	"time"
)

const (
	// toleratedTroubles is how many refused batches, lost histories and restarts of
	// a publisher have no consequence beyond themselves.
	toleratedTroubles = 8
	// forgivenEvery is the time in which one trouble is forgiven, and so the mean
	// time between two attempts at a publisher that gives nothing but trouble.
	forgivenEvery = 10 * time.Second
	// firstPause doubles with every trouble that is not tolerated.
	firstPause   = 200 * time.Millisecond
	longestPause = time.Minute
	// longestRetry bounds the wait between two connections where none lasts, unless
	// RetryAfter is longer.
	longestRetry = 5 * time.Second
	// lasting is how long a connection must last for the next one to be made at once.
	lasting = 10 * time.Second
)

// troubles counts what a publisher did wrong, and gives the pauses that it is left
// alone for.
type troubles struct {
	seen    uint64 // of the counters that were judged before
	level   float64
	updated time.Time
}

// judge takes the number of all troubles so far and returns the pause that is due,
// zero when there is none.
func (t *troubles) judge(all uint64, now time.Time) time.Duration {
	if all == t.seen {
		return 0
	}
	if !t.updated.IsZero() {
		t.level = max(0, t.level-float64(now.Sub(t.updated))/float64(forgivenEvery))
	}
	t.level += float64(all - t.seen)
	t.seen, t.updated = all, now
	beyond := int(math.Round(t.level)) - toleratedTroubles
	if beyond <= 0 {
		return 0
	}
	pause := firstPause << min(beyond-1, 16)
	t.level = min(t.level, toleratedTroubles+16)
	return min(pause, longestPause)
}

// nextRetry is the wait before the next connection, where the last one lasted for
// so long and came after a wait. The first wait is given.
func nextRetry(first, wait, lasted time.Duration) time.Duration {
	if lasted >= lasting {
		return first
	}
	return min(max(2*wait, first), max(first, longestRetry))
}
