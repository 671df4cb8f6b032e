package load

import "sync/atomic"

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
