package decision

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// maxID bounds the bytes of a request's id: clients may choose it, and records keep it.
const maxID = 256

// RequestID returns the id of a request, an x-request-id, as records know it.
func RequestID(id string) string {
	if len(id) > maxID {
		return strings.Clone(id[:maxID])
	}
	return id
}

// Ring keeps the last decisions' records. Writers of different records do not
// wait for each other.
type Ring struct {
	next atomic.Uint64
	kept []keptRecord
}

type keptRecord struct {
	mu  sync.Mutex
	rec Record
}

// NewRing returns a ring of n records.
func NewRing(n int) *Ring { return &Ring{kept: make([]keptRecord, n)} }

// Decisions returns the number of all decisions, not only of the kept ones.
func (g *Ring) Decisions() uint64 { return g.next.Load() }

// Put copies rec in and returns its number.
func (g *Ring) Put(rec *Record) uint64 {
	seq := g.next.Add(1)
	s := &g.kept[seq%uint64(len(g.kept))]
	s.mu.Lock()
	defer s.mu.Unlock()
	buf, partners := s.rec.Candidates, s.rec.Partners
	s.rec = *rec
	s.rec.Seq = seq
	s.rec.Candidates = append(buf[:0], rec.Candidates...)
	s.rec.Partners = append(partners[:0], rec.Partners...)
	return seq
}

// Answer adds an answer's usage to the record of that number and request id, once. It
// reports whether the record is still kept.
func (g *Ring) Answer(seq uint64, id string, a *Answered) (kept bool) {
	g.with(seq, id, func(rec *Record) {
		if kept = rec.Answered == nil; kept {
			rec.Answered = a
		}
	})
	return kept
}

// Head returns the key of the first block of the prompt of that number and request id, 0 if it is
// not kept.
func (g *Ring) Head(seq uint64, id string) (head uint64) {
	g.with(seq, id, func(rec *Record) { head = rec.head })
	return head
}

// with calls f with the record of that number and request id, if it is still kept.
func (g *Ring) with(seq uint64, id string, f func(*Record)) {
	s := &g.kept[seq%uint64(len(g.kept))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.Seq == seq && s.rec.ID == id {
		f(&s.rec)
	}
}

// Split adds how a split ended to the record of that number and request id, if it is still kept.
func (g *Ring) Split(seq uint64, id string, of *Split) { g.with(seq, id, of.Report) }

// Last returns copies of the newest n records that match, newest first. A nil
// match takes all.
func (g *Ring) Last(n int, match func(*Record) bool) []Record {
	var out []Record
	newest := g.next.Load()
	for seq := newest; seq > 0 && newest-seq < uint64(len(g.kept)) && len(out) < n; seq-- {
		s := &g.kept[seq%uint64(len(g.kept))]
		s.mu.Lock()
		if s.rec.Seq == seq && (match == nil || match(&s.rec)) {
			rec := s.rec
			rec.Candidates = slices.Clone(s.rec.Candidates)
			rec.Partners = slices.Clone(s.rec.Partners)
			out = append(out, rec)
		}
		s.mu.Unlock()
	}
	return out
}
