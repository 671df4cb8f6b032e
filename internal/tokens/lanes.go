package tokens

import (
	"errors"
	"runtime"

	"warmroute/internal/bound"
)

// ErrBusy means that this process already computes as many prompts as it may.
var ErrBusy = errors.New("tokens: too many prompts are computed at once")

const (
	// SmallBody is the largest size of a small body: about 60,000 tokens of English, 10 ms
	// of one core.
	SmallBody = 256 << 10
	// smallPerLarge is how many small bodies are computed at once for each large one: they
	// end soon, and come in bursts.
	smallPerLarge = 32
)

// Lanes bound how many prompts are computed at once in this process: prompts of large
// bodies, and apart from them those of small bodies, so that no number of large bodies
// refuses a small one. A prompt that finds its lane full does not wait. The zero value is
// ready, with a large body for each core. Safe for concurrent use.
type Lanes struct {
	limit        int64      // of large bodies; 0: as many as cores; tests set it
	small, large bound.Pool // under way
}

// enter takes a place for a body of some bytes and returns its lane, to which the caller gives
// it back, or nil if the lane is full.
func (l *Lanes) enter(bytes int) *bound.Pool {
	lane, limit := &l.large, l.limit
	if limit == 0 {
		limit = int64(runtime.GOMAXPROCS(0))
	}
	if bytes <= SmallBody {
		lane, limit = &l.small, limit*smallPerLarge
	}
	if !lane.Take(1, limit) {
		return nil
	}
	return lane
}
