package indexrpc

import (
	"maps"
	"time"

	"warmroute/index"
)

// aliveOnly is the time of a batch that shows only that its replica is alive: older
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

// maxSchemes bounds the hash schemes of one reporter whose times are kept. The server
// drops the least recently reported one, whose blocks then count as stale.
const maxSchemes = 16

// freshen records a report of blocks of one scheme: they are as fresh as the report;
// blocks of other schemes stay as they are. r.mu is held; lookups read the map without
// it, so it is replaced, never changed.
func (r *reporter) freshen(scheme string, at time.Time) {
	next := map[string]int64{}
	if old := r.fresh.Load(); old != nil {
		next = maps.Clone(*old)
	}
	if _, known := next[scheme]; !known && len(next) >= maxSchemes {
		oldest := ""
		for s, t := range next {
			if oldest == "" || t < next[oldest] {
				oldest = s
			}
		}
		delete(next, oldest)
	}
	next[scheme] = max(next[scheme], at.UnixNano())
	r.fresh.Store(&next)
}

// freshenAll records that all reported blocks still held at a time. r.mu is held.
func (r *reporter) freshenAll(at time.Time) {
	old := r.fresh.Load()
	if old == nil {
		return
	}
	next := make(map[string]int64, len(*old))
	for scheme, t := range *old {
		next[scheme] = max(t, at.UnixNano())
	}
	r.fresh.Store(&next)
}

// newest returns the time of the newest evidence for a holder's blocks of a scheme.
// After the last call of its reporter only the router's own subscription can have
// brought the index evidence, which is about all blocks of the holder.
func (s *Server) newest(h index.Holder, m index.Match, scheme string) time.Time {
	r := s.reporterOf(h)
	if r == nil || m.Seen/int64(time.Millisecond) > r.seen.Load() {
		return time.Unix(0, m.Seen)
	}
	fresh := r.fresh.Load()
	if fresh == nil {
		return aliveOnly
	}
	return time.Unix(0, (*fresh)[scheme])
}
