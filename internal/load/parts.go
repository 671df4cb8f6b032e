package load

import "sync/atomic"

// Parts are what a holder has done in split requests.
type Parts struct {
	UnderWay int64 `json:"under_way"`    // prompts that it computes for others
	Computed int64 `json:"computed"`     // prompts that it has computed for others
	Answered int64 `json:"answered"`     // requests whose prompt another one has computed for it
	Moved    int64 `json:"moved_tokens"` // tokens of these whose KV cache was moved to it, as far as known
}

type parts struct{ underWay, computed, answered, moved atomic.Int64 }

// Parts returns what the holder has done in split requests so far.
func (a *Account) Parts() Parts {
	p := &a.parts
	return Parts{p.underWay.Load(), p.computed.Load(), p.answered.Load(), p.moved.Load()}
}

// LegBegun records that the holder computes a prompt for another one.
func (a *Account) LegBegun() { a.parts.underWay.Add(1) }

// LegEnded records that it does so no more; computed says that it has done it.
func (a *Account) LegEnded(computed bool) {
	a.parts.underWay.Add(-1)
	if computed {
		a.parts.computed.Add(1)
	}
}

// Took records that the holder answers a prompt that another one has computed, and how many of
// its tokens were moved, 0 if that is not known.
func (a *Account) Took(tokens int) {
	a.parts.answered.Add(1)
	a.parts.moved.Add(int64(tokens))
}
