package kvevents

import (
	"errors"

	"warmroute/index"
)

// purpose says why a replay is requested, and so how its frames are used.
type purpose uint8

const (
	fresh purpose = iota + 1 // start over from the oldest kept batch
	fill                     // the missing batches: after a gap, a reconnect, a bad batch
	probe                    // the same, though no batch seems to be missing: a lost tail shows no gap
)

// asked is the replay under way. Unless it starts over, it requests from the last applied
// batch, not from the one after it: if the first reply is not that very batch, the
// publisher has begun a new life, which its sequence alone need not show.
type asked struct {
	id       uint64
	purpose  purpose
	from     uint64
	check    bool   // the first reply must be the last applied batch
	start    uint64 // the next sequence at the time of the request
	attempt  int
	stalls   int  // number of requests because of a hole inside the replies
	any      bool // a reply has come
	taken    bool // one of them was applied
	stalled  bool // behind a hole inside the replies
	rejected bool // because the live copy could not be decoded
}

const (
	// attemptLimit bounds the attempts at a failing replay. After them live events continue
	// without it.
	attemptLimit = 3
	// stallLimit bounds the requests because of holes inside the replies: the publisher's
	// ROUTER drops replies above its high-water mark (1,000 by default), so such a hole is
	// requested again, and each answer brings at least one batch more. After this many,
	// holes count as real.
	stallLimit = 32
)

// wanted returns the replay to send now, once.
func (s *sequencer) wanted() *asked {
	if !s.launch || s.ask == nil {
		return nil
	}
	s.launch = false
	s.count.Replays++
	return s.ask
}

func (s *sequencer) request(a asked) {
	s.lastID++
	a.id, a.start, a.any, a.taken, a.stalled = s.lastID, s.next, false, false, false
	a.from, a.check = 0, false
	if a.purpose != fresh {
		a.from = s.next
		if last := &s.recent[(s.next-1)%recentSize]; s.next > 0 && last.set && last.seq == s.next-1 {
			a.from, a.check = last.seq, true
		}
	}
	s.ask, s.launch = &a, true
}

// connected records a new connection of the event socket; frames that follow carry conn. It is not
// called while s waits.
func (s *sequencer) connected(conn uint64) {
	s.count.Connects++
	s.conn = conn
	switch {
	case !s.replays:
		s.first = true
	case !s.based || s.next == 0 || s.owed:
		s.oldest = conn
		s.request(asked{purpose: fresh})
	default:
		s.request(asked{purpose: fill})
	}
}

// probe requests batches that may have been lost unseen. It returns false if a replay is under
// way: batches may be lost behind it, too.
func (s *sequencer) probe() bool {
	switch {
	case !s.replays:
	case s.ask != nil:
		return false
	case s.owed || !s.based:
		s.request(asked{purpose: fresh, attempt: attemptLimit - 1})
	default:
		s.request(asked{purpose: probe, attempt: attemptLimit - 1})
	}
	return true
}

// reply takes one frame of the replay with the given id.
func (s *sequencer) reply(id uint64, f frame) {
	a := s.ask
	if a == nil || a.id != id || a.stalled {
		return
	}
	first := !a.any
	a.any = true
	switch {
	case first && a.purpose == fresh:
		s.forget(index.LossBegun)
		s.base(f.seq)
	case first && a.check && f.seq == a.from:
		if _, same := s.recalls(f); !same {
			s.restarted(max(s.conn, s.latest))
			return
		}
		s.verified, s.trial = s.conn, false
		return
	case first && a.check && f.seq >= s.next:
		// The last applied batch has left the buffer: the next one may be another life's.
		s.lose(f.seq)
	case f.seq < s.next:
		return
	case f.seq > s.next && !a.taken, f.seq > s.next && a.stalls >= stallLimit:
		s.lose(f.seq) // the buffer no longer reaches back
	case f.seq > s.next:
		a.stalled = true
		return
	}
	a.taken = true
	s.accept(f, true)
}

// replied ends the replay with the given id: err is nil at the end marker.
func (s *sequencer) replied(id uint64, err error) {
	a := s.ask
	if a == nil || a.id != id {
		return
	}
	s.ask = nil
	switch {
	case errors.Is(err, errEndless):
		s.endless()
	case err != nil:
		if s.failed(a); s.ask == nil {
			s.unreplayed = err.Error()
		}
	default:
		s.unreplayed = ""
		s.ended(a)
	}
	if s.ask == nil {
		s.first = true
		s.drain()
	}
}

// ended continues after an end marker.
func (s *sequencer) ended(a *asked) {
	switch {
	case a.stalled:
		s.request(asked{purpose: fill, stalls: a.stalls + 1})
		return
	case a.check && !a.any && s.seenConn == s.conn && s.seenSeq == s.next-1:
		s.unreplayed = "the publisher keeps none (buffer_steps)"
	case a.check && !a.any:
		// A publisher always has its own last batch. This one has fewer than were applied.
		s.restarted(max(s.conn, s.latest))
		return
	case a.purpose == fresh:
		if !a.any {
			s.forget(index.LossBegun)
			s.base(0)
		}
		s.owed = false
		s.verified = s.conn
	}
	s.give(a)
}

// failed repeats the replay, or continues without it.
func (s *sequencer) failed(a *asked) {
	s.count.ReplayFails++
	if s.next != a.start && a.purpose != fresh || a.any && a.purpose == fresh {
		a.attempt = 0 // it brought batches: continue behind them
	}
	if a.attempt+1 < attemptLimit {
		again := *a
		again.attempt++
		if a.stalled {
			again.stalls++
		}
		if a.any {
			again.purpose = fill
		}
		s.request(again)
		return
	}
	if a.purpose == fresh {
		s.owed = true
		return
	}
	if s.trial {
		s.giveUpTrial()
		return
	}
	s.give(a)
}

// endless drops the batches of a replay without an end, and all known before. The live
// events go on; history is requested again at the next chance.
func (s *sequencer) endless() {
	s.count.ReplayFails++
	s.lose(s.next)
	s.based, s.owed = false, true
	clear(s.recent[:])
}

// give decides, after the end of a replay, about the hole for which it was requested: if no
// batch came, the gap stays and the batches applied before it are dropped.
func (s *sequencer) give(a *asked) {
	if !s.based || a.purpose == fresh || s.next != a.start {
		return
	}
	switch {
	case s.held != nil && s.held.seq > s.next:
		s.lose(s.held.seq)
	case a.rejected:
		s.lose(s.next + 1)
	}
}
