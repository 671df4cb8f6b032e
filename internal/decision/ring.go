package decision

import (
	"sync"
	"sync/atomic"
)

// Ring keeps the last decisions' records. Writers of different records do not
// wait for each other.
type Ring struct {
	next atomic.Uint64
	kept atomic.Pointer[[]keptRecord]
}

type keptRecord struct {
	mu  sync.Mutex
	rec Record
}

// NewRing returns a ring of n records; n < 1 counts as 1.
func NewRing(n int) *Ring {
	g := &Ring{}
	g.Resize(n)
	return g
}

// Resize makes room for n records and keeps the newest. A record that is put at the same
// time may be lost.
func (g *Ring) Resize(n int) {
	kept := make([]keptRecord, max(1, n))
	if g.kept.Load() != nil {
		for _, rec := range g.Last(len(kept), nil) {
			kept[rec.Seq%uint64(len(kept))].rec = rec
		}
	}
	g.kept.Store(&kept)
}

// Decisions returns the number of all decisions, not only of the kept ones.
func (g *Ring) Decisions() uint64 { return g.next.Load() }

// Put copies rec in and numbers it.
func (g *Ring) Put(rec *Record) {
	seq := g.next.Add(1)
	kept := *g.kept.Load()
	s := &kept[seq%uint64(len(kept))]
	s.mu.Lock()
	defer s.mu.Unlock()
	buf := s.rec.Candidates
	s.rec = *rec
	s.rec.Seq = seq
	s.rec.Candidates = append(buf[:0], rec.Candidates...)
}

// Last returns copies of the newest n records that match, newest first. A nil
// match takes all.
func (g *Ring) Last(n int, match func(*Record) bool) []Record {
	var out []Record
	newest, kept := g.next.Load(), *g.kept.Load()
	for seq := newest; seq > 0 && newest-seq < uint64(len(kept)) && len(out) < n; seq-- {
		s := &kept[seq%uint64(len(kept))]
		s.mu.Lock()
		if s.rec.Seq == seq && (match == nil || match(&s.rec)) {
			rec := s.rec
			rec.Candidates = append([]CandidateRecord(nil), s.rec.Candidates...)
			out = append(out, rec)
		}
		s.mu.Unlock()
	}
	return out
}
