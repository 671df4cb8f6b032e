package indexrpc

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"warmroute/index"
	"warmroute/internal/bound"
)

// ReporterKey is the gRPC metadata of PublishEvent that tells reporters of one holder apart.
const ReporterKey = "x-warmroute-reporter"

// mixedFor is for how long several reporters of one holder are noted after the last turn.
const mixedFor = time.Minute

// selves are the reporters that report one holder, by what tells them apart (ReporterKey).
// One that starts again has another name, and an earlier one never returns.
type selves struct {
	selfMu sync.Mutex
	recent [4]string // the last ones, the newest first
	mixed  time.Time // when an earlier one returned
}

// call records a call.
func (s *selves) call(self string, now time.Time) {
	s.selfMu.Lock()
	defer s.selfMu.Unlock()
	at := slices.Index(s.recent[:], self)
	switch at {
	case 0:
		return
	case -1:
		at = len(s.recent) - 1
	default:
		s.mixed = now
	}
	copy(s.recent[1:at+1], s.recent[:at])
	s.recent[0] = self
}

// mix reports whether several reporters report the holder.
func (s *selves) mix(now time.Time) bool {
	s.selfMu.Lock()
	defer s.selfMu.Unlock()
	return now.Sub(s.mixed) < mixedFor
}

// called records which reporter of h has called.
func (s *Server) called(ctx context.Context, h index.Holder) {
	if self := metadata.ValueFromIncomingContext(ctx, ReporterKey); len(self) == 1 && len(self[0]) <= maxSelf {
		s.reporter(h).call(self[0], s.o.Now())
	}
}

// maxSelf bounds the bytes of a reporter's name that are kept.
const maxSelf = 64

// Notes names the holders that several reporters report.
func (s *Server) Notes() []string {
	var mixed []string
	s.mu.RLock()
	defer s.mu.RUnlock()
	for h, r := range s.reporters {
		if r.mix(s.o.Now()) {
			mixed = append(mixed, fmt.Sprintf("replica %s, rank %d: several sidecars report it by turns, and its known blocks are a mixture of theirs: look at their -replica and -rank", printable(h.Replica), h.Rank))
		}
	}
	slices.Sort(mixed)
	return bound.Notes(mixed, bound.MostNotes, "ranks are reported by several sidecars")
}
