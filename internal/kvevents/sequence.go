package kvevents

import (
	"errors"

	"github.com/cespare/xxhash/v2"

	"warmroute/index"
)

// errExpired is a world's answer when it no longer has the batches applied before: it has
// applied nothing, and history has to come again.
var errExpired = errors.New("dropped in the meantime")

// frame is one published batch in the form of the socket.
type frame struct {
	conn    uint64 // the number of its connection of the event socket; 0 for replayed ones
	seq     uint64
	payload []byte
	taken   int64 // bytes of Room until Run is done with it
}

// world is the outside of a sequencer.
type world interface {
	apply(f frame) error   // decode and pass on; after an error nothing was applied
	forget(why index.Loss) // drop all applied batches
}

// recentSize frames are kept by digest, to distinguish a late copy from a restart.
const recentSize = 64

// sequencer decides, from sequence numbers alone, which batches are applied, which are
// copies, which are missing and when the publisher has begun a new life. It does no I/O and
// reads no clock. Its invariant: the batches applied since the last forget are, in order
// and without a hole, the published ones from the first of them to next-1.
type sequencer struct {
	world      world
	replays    bool   // a replay endpoint is known
	unreplayed string // see Status.NoReplay

	applied
	connections
	ask    *asked
	lastID uint64
	launch bool
	held   *frame // the live frame for which the replay is
	recent [recentSize]struct {
		seq, sum uint64
		set      bool
	}

	count Counters
}

// applied is the place in the publisher's sequence.
type applied struct {
	next     uint64 // first batch not applied yet
	based    bool   // next is known
	clean    bool   // nothing applied since the last forget
	complete bool   // applied from sequence 0 on
	owed     bool   // history was not available; request it again later
	first    bool   // the first catch-up is over
	trial    bool   // resumed, and the publisher has not shown yet that it is the same
}

// connections are those of the event socket, by number.
type connections struct {
	conn     uint64 // the latest that was read from
	latest   uint64 // the latest, whose frames may all be unread
	oldest   uint64 // frames of those before this belong to an earlier life
	verified uint64 // up to this one, the publisher is known to be the followed one
	seenConn uint64 // of the last live frame taken
	seenSeq  uint64
}

func newSequencer(w world, replays bool) *sequencer {
	return &sequencer{world: w, replays: replays, applied: applied{clean: true}}
}

// waits reports whether a replay has to end before the event socket is read on.
func (s *sequencer) waits() bool { return s.ask != nil && s.ask.purpose != probe }

// caughtUp reports whether the past was asked for and is known as far as the publisher keeps it.
func (s *sequencer) caughtUp() bool { return s.first && !s.owed }

// live takes a frame from the event socket, which is not read while s waits.
func (s *sequencer) live(f frame) {
	if s.ask != nil && f.seq != s.next { // behind a probe
		s.ask.purpose, s.ask.attempt = fill, 0
		s.held = &f
	} else if !s.step(f) {
		s.held = &f
	}
}

// drain takes the held frame.
func (s *sequencer) drain() {
	if f := s.held; f != nil && s.ask == nil {
		s.held = nil
		s.live(*f)
	}
}

// step takes one live frame; false means that a replay has to come first.
func (s *sequencer) step(f frame) bool {
	if f.conn < s.oldest {
		return true
	}
	switch {
	case !s.based:
		s.base(f.seq)
	case f.seq == s.next: // on an unverified connection too: another life is unlikely to be just here
	case f.seq > s.next:
		s.count.Gaps++
		if s.replays {
			s.request(asked{purpose: fill})
			return false
		}
		s.lose(f.seq)
	case s.isCopy(f):
		s.count.Duplicates++
		s.seen(f)
		return true
	default:
		if s.restarted(f.conn); s.replays {
			return true
		}
		s.base(f.seq)
	}
	s.seen(f)
	s.accept(f, false)
	return true
}

func (s *sequencer) seen(f frame) { s.seenConn, s.seenSeq = f.conn, f.seq }

// base makes seq the next batch, nothing before it known.
func (s *sequencer) base(seq uint64) {
	s.next, s.based, s.complete = seq, true, seq == 0
}

// accept applies the next batch.
func (s *sequencer) accept(f frame, replayed bool) {
	err := s.world.apply(f)
	if errors.Is(err, errExpired) {
		s.expired()
		if s.replays {
			return
		}
		s.base(f.seq)
		err = s.world.apply(f)
	}
	if err != nil {
		s.count.Rejected++
		if !replayed && s.replays {
			s.request(asked{purpose: fill, rejected: true})
			s.remember(f)
			return
		}
		s.remember(f)
		s.lose(f.seq + 1)
		return
	}
	s.clean = false
	s.remember(f)
	s.next = f.seq + 1
	if replayed {
		s.count.Replayed++
		s.verified = s.conn
	}
}

// lose gives up the batches before next.
func (s *sequencer) lose(next uint64) {
	s.count.Lost++
	s.forget(index.LossEvents)
	s.base(next)
	s.complete = false
}

func (s *sequencer) forget(why index.Loss) {
	s.trial = false
	if !s.clean {
		s.world.forget(why)
		s.clean = true
	}
}

// restarted starts over with the publisher's new life, which showed on connection conn.
func (s *sequencer) restarted(conn uint64) {
	s.count.Restarts++
	s.oldest, s.seenConn = conn, 0
	clear(s.recent[:])
	s.again(index.LossRestarted)
}

// expired starts over because the world dropped the batches that it held.
func (s *sequencer) expired() {
	s.clean = false
	s.again(index.LossBegun)
}

// again forgets everything. If there are replays, history comes again.
func (s *sequencer) again(why index.Loss) {
	s.forget(why)
	s.based, s.complete, s.held = false, false, nil
	if s.replays {
		s.request(asked{purpose: fresh})
	}
}

func (s *sequencer) remember(f frame) {
	r := &s.recent[f.seq%recentSize]
	r.seq, r.sum, r.set = f.seq, xxhash.Sum64(f.payload), true
}

// recalls reports whether a batch with f's sequence was taken lately, and whether it was
// the same.
func (s *sequencer) recalls(f frame) (taken, same bool) {
	r := &s.recent[f.seq%recentSize]
	taken = r.set && r.seq == f.seq
	return taken, taken && r.sum == xxhash.Sum64(f.payload)
}

// isCopy distinguishes a late copy of a replayed batch from the first batch of a new life:
// by its digest if that is remembered, otherwise because a connection of the same life
// never goes backwards.
func (s *sequencer) isCopy(f frame) bool {
	if taken, same := s.recalls(f); taken {
		return same
	}
	backwards := f.conn == s.seenConn && f.seq <= s.seenSeq
	return !backwards && f.conn <= s.verified
}
