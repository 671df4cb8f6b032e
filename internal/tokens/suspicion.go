package tokens

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/internal/bound"
	"warmroute/render/openai"
)

const (
	// suspectEvery is the least time between suspicions of one model: answers come from
	// replicas, and a comparison is a question to one.
	suspectEvery = time.Minute
	// suspectRequests and suspectKinds bound the requests that a suspicion looks at, and the
	// comparisons that it costs.
	suspectRequests = 1000
	suspectKinds    = 16
)

// suspicion chooses requests to be compared with a replica, after an answer had another number
// of prompt tokens than this process: of the next requests, the first one with each set of
// features. An answer alone does not demote: one replica may count otherwise than all others.
type suspicion struct {
	left atomic.Int64 // requests to be looked at

	mu     sync.Mutex
	raised bound.Rate
	seen   []openai.Features
}

// raise begins a suspicion, unless the last one is too young.
func (s *suspicion) raise(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.raised.Take(now, suspectEvery, 1) {
		s.seen = s.seen[:0]
		s.left.Store(suspectRequests)
	}
}

// chooses reports whether a request with these features is to be compared.
func (s *suspicion) chooses(f openai.Features) bool {
	if s.left.Load() <= 0 || s.left.Add(-1) < 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) == suspectKinds || slices.Contains(s.seen, f) {
		return false
	}
	s.seen = append(s.seen, f)
	return true
}

// Suspect records that a replica has counted another number of tokens for a prompt of the
// model, a base model's name, than this process may have computed. The next requests are
// compared, if any are.
func (l *Local) Suspect(model string) {
	if v, ok := l.models.Load(model); ok {
		v.(*localModel).suspicion.raise(l.o.Now())
	}
}
