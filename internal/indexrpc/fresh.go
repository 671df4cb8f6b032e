package indexrpc

import (
	"time"

	"warmroute/index"
)

// aliveOnly is the time of a call that shows only that its replica is alive: older
// than all evidence, so that it makes no block fresher.
var aliveOnly = time.Unix(0, 1)

// at returns a reported time, at most the server's now. Without one it returns now. sent, if it
// is given, is the reporter's now: reporters' clocks may be wrong by more than the TTL.
func (s *Server) at(ms, sent int64) time.Time {
	now := s.o.Now()
	if ms > 0 && sent > 0 {
		ms = now.UnixMilli() - max(0, sent-ms)
	}
	if t := time.UnixMilli(ms); ms > 0 && t.Before(now) {
		return t
	}
	return now
}

// freshness returns 1 for evidence of now and 0 for evidence as old as the TTL; without
// a TTL nothing ages.
func freshness(age, ttl time.Duration) float64 {
	if ttl <= 0 {
		return 1
	}
	return 1 - min(1, max(0, float64(age)/float64(ttl)))
}

// newest returns the time of the newest evidence for a holder's blocks.
// After the last call of its reporter only the router's own subscription can have
// brought the index evidence, which is about all blocks of the holder.
func (s *Server) newest(h index.Holder, id index.HolderID) time.Time {
	r, last := s.reporterOf(h), s.x.LastReport(id)
	if r == nil || last.UnixMilli() > r.seen.Load() {
		return last
	}
	return time.Unix(0, r.fresh.Load())
}
