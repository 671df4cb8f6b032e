package simulator

import (
	"math"
	"slices"
)

// upcoming returns the next request to arrive, nil if none is known.
func (s *Sim) upcoming() *Request {
	if s.behind != nil {
		if len(s.due) == 0 {
			return nil
		}
		return s.due[0]
	}
	if s.next >= len(s.requests) {
		return nil
	}
	r := s.requests[s.next]
	if s.c.Closed > 0 {
		if r.At = s.now; s.open >= s.c.Closed {
			r.At = math.Inf(1)
		}
	}
	return r
}

// beginSessions opens the first sessions, if requests come by sessions.
func (s *Sim) beginSessions() {
	if s.c.Sessions == 0 {
		return
	}
	s.behind, s.drained = map[*Request]*Request{}, math.Inf(1)
	last := map[int]*Request{}
	for _, r := range s.requests {
		if l := last[r.Session]; l != nil {
			s.behind[l] = r
		} else {
			s.sessions = append(s.sessions, r)
		}
		last[r.Session] = r
	}
	for range s.c.Sessions {
		s.openSession()
	}
}

// openSession lets the next session begin.
func (s *Sim) openSession() {
	if len(s.sessions) == 0 {
		s.drained = min(s.drained, s.now)
		return
	}
	s.expect(s.sessions[0])
	s.sessions = s.sessions[1:]
}

// expect puts a request of a session in line.
func (s *Sim) expect(r *Request) {
	r.At = s.now + r.Think
	i, _ := slices.BinarySearchFunc(s.due, r.At, func(r *Request, at float64) int {
		if r.At <= at {
			return -1
		}
		return 1
	})
	s.due = slices.Insert(s.due, i, r)
}

// follow lets the request come that goes on from one that is done, or another session begin.
func (s *Sim) follow(r *Request) {
	if s.behind == nil {
		return
	}
	if next := s.behind[r]; next != nil {
		s.expect(next)
		return
	}
	s.openSession()
}
