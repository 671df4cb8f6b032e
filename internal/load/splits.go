package load

import (
	"sync/atomic"

	"warmroute/internal/learned"
)

const (
	// handoverShare is the weight of a new move in the learned times: about the last
	// twenty decide.
	handoverShare = 0.05
	// handoverPrior is the weight of each of the two moves, one of no token and one of
	// handoverTokens, that take as long as the settings say.
	handoverPrior  = 0.01
	handoverTokens = 8192.0
	// handoverJump bounds the distance of a single move from the expected time: a move that
	// waited for room in the cache does not show the connection.
	handoverJump = 3
	// countedLeast is the number of moved tokens from which a replica's own count of the
	// time they took replaces the setting, within a factor of countedJump.
	countedLeast = 8192
	countedJump  = 30
)

// handover learns how long KV caches take to be moved to one account's cache: a line over
// the number of tokens, by least squares of decaying weights. One goroutine at a time may
// observe.
type handover struct {
	sums    atomic.Pointer[line]
	counted atomicFloat // seconds for each moved token by the replica's own count; 0 = not known
}

// line has the sums of a weighted regression of seconds on tokens. It is immutable.
type line struct{ n, x, y, xx, xy float64 }

func (l line) plus(weight, x, y float64) line {
	return line{l.n + weight, l.x + weight*x, l.y + weight*y, l.xx + weight*x*x, l.xy + weight*x*y}
}

// count takes the replica's own sums since its start: seconds of moves and the tokens that
// they brought. Where another connector brings tokens, too, the time for each is too short.
func (h *handover) count(seconds, tokens float64) {
	each := 0.
	if seconds > 0 && tokens >= countedLeast {
		each = seconds / tokens
	}
	h.counted.Store(each)
}

// observe learns from KV caches of the prefill that ended at from, and were there at now.
func (h *handover) observe(t *Terms, from, now int64) {
	if now <= from || t.Moved <= 0 {
		return
	}
	expected := float64(t.Moving) / 1e9
	seconds := learned.Near(float64(now-from)/1e9, expected, handoverJump)
	var old line
	if p := h.sums.Load(); p != nil {
		const k = 1 - handoverShare
		old = line{k * p.n, k * p.x, k * p.y, k * p.xx, k * p.xy}
	}
	next := old.plus(handoverShare, float64(t.Moved), seconds)
	h.sums.Store(&next)
}

// Handover returns how many seconds after the end of a prefill its KV cache begins to move
// to this account's cache, and the seconds for each token; base and token are what is
// assumed before the first move. The replica's own count of earlier moves replaces token.
func (h *handover) Handover(base, token float64) (seconds, eachToken float64) {
	if each := h.counted.Load(); each > 0 {
		token = learned.Near(each, token, countedJump)
	}
	p := h.sums.Load()
	if p == nil {
		return base, token
	}
	l := p.plus(handoverPrior, 0, base).plus(handoverPrior, handoverTokens, base+token*handoverTokens)
	each := (l.n*l.xy - l.x*l.y) / (l.n*l.xx - l.x*l.x) // the priors' tokens differ: never 0/0
	if each = max(0, each); l.y < each*l.x {
		each = l.y / l.x // no handover takes less than nothing
	}
	return max(0, (l.y-each*l.x)/l.n), each
}

// Parts are what a holder has done in split requests.
type Parts struct {
	UnderWay int64 `json:"under_way"`    // prompts that it computes for others
	Computed int64 `json:"computed"`     // prompts that it has computed for others
	Answered int64 `json:"answered"`     // requests whose prompt another one has computed for it
	Moved    int64 `json:"moved_tokens"` // tokens of these whose KV cache was moved to it, as far as known
}

// splits counts Parts, and learns how long KV caches take to be moved to the holder.
type splits struct {
	handover
	underWay, computed, took, moved atomic.Int64
}

// Parts returns what the holder has done in split requests so far.
func (s *splits) Parts() Parts {
	return Parts{s.underWay.Load(), s.computed.Load(), s.took.Load(), s.moved.Load()}
}

// LegBegun records that the holder computes a prompt for another one.
func (s *splits) LegBegun() { s.underWay.Add(1) }

// LegEnded records that it does so no more; computed says that it has done it.
func (s *splits) LegEnded(computed bool) {
	s.underWay.Add(-1)
	if computed {
		s.computed.Add(1)
	}
}

// Took records that the holder answers a prompt that another one has computed, and how many of
// its tokens were moved, 0 if that is not known.
func (s *splits) Took(tokens int) {
	s.took.Add(1)
	s.moved.Add(int64(tokens))
}
