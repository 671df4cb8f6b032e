package kvevents

import (
	"math"
	"time"

	"warmroute/index"
	"warmroute/internal/bound"
)

const (
	// toleratedTroubles is the number of a publisher's refused batches without further
	// consequences.
	toleratedTroubles = 8
	// forgivenEvery is the time in which one refused batch is forgiven, and so the mean
	// time between two attempts at a publisher of nothing but such batches.
	forgivenEvery = 10 * time.Second
	// lossesPerTrouble is the number of lost histories and restarts that weigh as much
	// as one refused batch. Each costs one replay, and a pause costs all indexed blocks
	// of the publisher: 400 are tolerated, and then 5 a second.
	lossesPerTrouble = 50
	// firstPause doubles with every trouble that is not tolerated.
	firstPause   = 200 * time.Millisecond
	longestPause = time.Minute
	// longestRetry bounds the wait between two connections if none lasts, unless
	// RetryAfter is longer.
	longestRetry = 5 * time.Second
	// lasting is how long a connection must last for the next one to be made at once.
	lasting = 10 * time.Second
)

// troubles counts a publisher's errors, and gives the pauses during which the
// subscriber does not follow it.
type troubles struct {
	refused, lost uint64 // judged so far
	all           bound.Rate
}

// judge takes the total numbers of refused batches and of losses and restarts. It
// returns the pause that is due, or zero.
func (t *troubles) judge(refused, lost uint64, now time.Time) time.Duration {
	if refused == t.refused && lost == t.lost {
		return 0
	}
	n := float64(refused-t.refused) + float64(lost-t.lost)/lossesPerTrouble
	t.refused, t.lost = refused, lost
	beyond := int(math.Round(t.all.Add(n, now, forgivenEvery, toleratedTroubles+16))) - toleratedTroubles
	if beyond <= 0 {
		return 0
	}
	return min(firstPause<<(beyond-1), longestPause)
}

// abandon drops all applied batches: the publisher is not followed for a
// while, and its removals are missed meanwhile.
func (s *sequencer) abandon() {
	s.forget(index.LossBegun)
	s.based, s.complete, s.owed = false, false, s.replays
	s.ask, s.launch, s.held, s.seenConn = nil, false, nil, 0
	clear(s.recent[:])
}

// troubles returns the refused batches, and the losses and restarts that cost a replay.
// Without replays a loss costs only the known blocks, and a pause would lose the
// batches of the meantime as well: nobody could request them after it.
func (s *sequencer) troubles() (refused, lost uint64) {
	if s.replays {
		lost = s.count.Lost + s.count.Restarts
	}
	return s.count.Rejected, lost
}

// nextRetry returns the wait before the next connection, given the wait before the last
// one and the time that it lasted. first is the first wait.
func nextRetry(first, wait, lasted time.Duration) time.Duration {
	if lasted >= lasting {
		return first
	}
	return min(max(2*wait, first), max(first, longestRetry))
}
