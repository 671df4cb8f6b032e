package kvevents

import (
	"math"
	"time"
)

const (
	// toleratedTroubles is how many refused batches of a publisher have no consequence
	// beyond themselves.
	toleratedTroubles = 8
	// forgivenEvery is the time in which one refused batch is forgiven, and so the mean
	// time between two attempts at a publisher that publishes nothing but such batches.
	forgivenEvery = 10 * time.Second
	// lossesPerTrouble is how many lost histories and restarts weigh as much as one
	// refused batch. Each costs one replay, and a pause the whole index of the
	// publisher: 400 are tolerated, and then 5 a second.
	lossesPerTrouble = 50
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
	refused, lost uint64 // judged before
	level         float64
	updated       time.Time
}

// judge takes the numbers of all batches refused and of all losses and restarts so far,
// and returns the pause that is due, zero when there is none.
func (t *troubles) judge(refused, lost uint64, now time.Time) time.Duration {
	if refused == t.refused && lost == t.lost {
		return 0
	}
	if !t.updated.IsZero() {
		t.level = max(0, t.level-float64(now.Sub(t.updated))/float64(forgivenEvery))
	}
	t.level += float64(refused-t.refused) + float64(lost-t.lost)/lossesPerTrouble
	t.refused, t.lost, t.updated = refused, lost, now
	beyond := int(math.Round(t.level)) - toleratedTroubles
	if beyond <= 0 {
		return 0
	}
	pause := firstPause << min(beyond-1, 16)
	t.level = min(t.level, toleratedTroubles+16)
	return min(pause, longestPause)
}

// abandon drops everything that was applied and held: the publisher is left alone
// for a while, and what it removes meanwhile is not seen.
func (s *sequencer) abandon() {
	s.forget()
	s.release()
	s.based, s.whole, s.owed = false, false, s.replays
	s.ask, s.launch, s.seenConn = nil, false, 0
	clear(s.recent[:])
}

// troubles are the batches refused, and the losses and restarts that cost a replay.
// Without replays a loss costs nothing but the known blocks, and a pause would lose the
// batches of the meantime as well: nobody could request them after it.
func (s *sequencer) troubles() (refused, lost uint64) {
	if s.replays {
		lost = s.count.Lost + s.count.Restarts
	}
	return s.count.Rejected, lost
}

// nextRetry is the wait before the next connection, where the last one lasted for
// so long and came after a wait. The first wait is given.
func nextRetry(first, wait, lasted time.Duration) time.Duration {
	if lasted >= lasting {
		return first
	}
	return min(max(2*wait, first), max(first, longestRetry))
}
