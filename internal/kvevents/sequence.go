package kvevents

import (
	"errors"

	"github.com/cespare/xxhash/v2"
)

// errExpired is a world's answer when it no longer has what was applied
// before: nothing was applied, and history has to come again.
var errExpired = errors.New("dropped in the meantime")

// frame is one published batch as it came off a socket.
type frame struct {
	conn    uint64 // which connection of the event socket; 0 for replayed ones
	seq     uint64
	payload []byte
	taken   int64 // bytes of Room until Run is done with it
}

// size is what a frame that is held takes of a Room.
func (f frame) size() int64 { return int64(len(f.payload)) + frameCost }

// world is what a sequencer does to the outside.
type world interface {
	apply(f frame) error // decode and hand over; an error means nothing was applied
	forget()             // drop what was applied so far
}

// purpose states why a replay is requested, and so how its frames are used.
type purpose uint8

const (
	fresh purpose = iota + 1 // start over from the oldest batch there is
	fill                     // what we lack: after a gap, a reconnect, a bad batch
	probe                    // the same, though nothing seems to lack: a lost tail shows no gap
)

// asked is the replay under way. Unless it starts over, it requests from the last
// batch applied, not from the one after it: if what comes first is not that very
// batch, the publisher has begun a new life, which its sequence alone need not show.
type asked struct {
	id       uint64
	purpose  purpose
	from     uint64
	check    bool   // the first reply must be our last batch
	start    uint64 // what was next when it was requested
	attempt  int
	stalls   int  // times a hole inside the replies was met and requested again
	any      bool // a reply has come
	taken    bool // one of them was applied
	stalled  bool // behind a hole inside the replies
	rejected bool // because the live copy could not be decoded
}

const (
	// attemptLimit: a replay that fails is tried this often before live events continue without it.
	attemptLimit = 3
	// stallLimit: the publisher's ROUTER drops replies above its high-water mark
	// (1,000 by default), so a hole inside the replies is requested again, and
	// each answer brings at least one batch more. After this many, holes count as real.
	stallLimit = 32
	// heldFrames and the Room bound the live frames that wait for a replay. What
	// comes on top is dropped, and shows as a gap afterwards.
	heldFrames = 1 << 16
	// recentSize frames are kept by digest, to distinguish a late copy from a restart.
	recentSize = 64
)

// sequencer decides, from sequence numbers alone, what is applied, what is a
// copy, what is missing and when the publisher has begun a new life. It does no
// I/O and reads no clock. Its invariant: everything applied since the last
// forget is, in order and without a hole, what was published from the first of
// them to next-1.
type sequencer struct {
	world   world
	replays bool // a replay endpoint is known

	next  uint64 // first batch not applied yet
	based bool   // next means something
	clean bool   // nothing applied since the last forget
	whole bool   // applied from sequence 0 on
	owed  bool   // history was not available; request it again later
	first bool   // the first catch-up is over
	trial bool   // resumed, and the publisher has not shown yet that it is the same

	conn     uint64 // latest connection of the event socket
	oldest   uint64 // frames of connections before this belong to an earlier life
	verified uint64 // up to this connection, the publisher is known to be the one applied
	seenConn uint64 // of the last live frame taken
	seenSeq  uint64

	ask    *asked
	lastID uint64
	launch bool
	held   []frame
	room   *Room // for what is held
	cut    bool  // what is held is in the answer to the replay just requested, or of an earlier life
	recent [recentSize]struct {
		seq, sum uint64
		set      bool
	}

	count Counters
}

func newSequencer(w world, replays bool) *sequencer {
	return &sequencer{world: w, replays: replays, clean: true, room: NewRoom()}
}

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

// connected notes a new connection of the event socket; frames that follow carry conn.
func (s *sequencer) connected(conn uint64) {
	s.count.Connects++
	s.conn = conn
	switch {
	case !s.replays:
		s.first = true
	case !s.based || s.next == 0 || s.owed || s.ask != nil && s.ask.purpose == fresh:
		// What is held from before is in the answer, or of an earlier life.
		s.oldest = conn
		s.request(asked{purpose: fresh})
	default:
		s.request(asked{purpose: fill})
	}
}

// probe requests what may have been lost unseen, unless a replay is under way.
func (s *sequencer) probe() {
	switch {
	case !s.replays || s.ask != nil:
	case s.owed || !s.based:
		s.request(asked{purpose: fresh, attempt: attemptLimit - 1})
	default:
		s.request(asked{purpose: probe, attempt: attemptLimit - 1})
	}
}

// live takes a frame from the event socket.
func (s *sequencer) live(f frame) {
	if s.ask != nil && s.ask.purpose == probe {
		if f.seq == s.next {
			s.step(f)
			return
		}
		s.ask.purpose, s.ask.attempt = fill, 0
	}
	if s.ask == nil && len(s.held) == 0 {
		if taken := s.step(f); taken || s.cut {
			s.drain()
			return
		}
	}
	if len(s.held) >= heldFrames || !s.room.hold(f) {
		s.count.Overflow++
		return
	}
	s.held = append(s.held, f)
}

// drain takes held frames until none is left or one needs a replay.
func (s *sequencer) drain() {
	n := 0
	for n < len(s.held) && s.ask == nil {
		if !s.step(s.held[n]) {
			break
		}
		n++
	}
	if s.cut {
		s.release()
		return
	}
	if n == 0 {
		return
	}
	s.room.drop(s.held[:n])
	rest := copy(s.held, s.held[n:])
	clear(s.held[rest:])
	s.held = s.held[:rest]
}

// release drops what is held.
func (s *sequencer) release() {
	s.room.drop(s.held)
	clear(s.held)
	s.held, s.cut = s.held[:0], false
}

// step takes one live frame; false means that a replay has to come first.
func (s *sequencer) step(f frame) bool {
	if f.conn < s.oldest {
		return true
	}
	switch {
	case !s.based:
		s.base(f.seq)
	case f.seq == s.next: // on an unverified connection too: that another life is just here is unlikely
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
			return false
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
	s.next, s.based, s.whole = seq, true, seq == 0
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

// lose gives up what lies before next.
func (s *sequencer) lose(next uint64) {
	s.count.Lost++
	s.forget()
	s.base(next)
	s.whole = false
}

func (s *sequencer) forget() {
	s.trial = false
	if !s.clean {
		s.world.forget()
		s.clean = true
	}
}

// restarted starts over with the publisher's new life, which showed on
// connection conn.
func (s *sequencer) restarted(conn uint64) {
	s.count.Restarts++
	s.forget()
	s.based, s.whole = false, false
	s.oldest, s.seenConn = conn, 0
	clear(s.recent[:])
	if s.replays {
		s.cut = true
		s.request(asked{purpose: fresh})
	}
}

// expired starts over because the world let go of what it held.
func (s *sequencer) expired() {
	s.clean = false
	s.forget()
	s.based, s.whole = false, false
	if s.replays {
		s.cut = true
		s.request(asked{purpose: fresh})
	}
}

func (s *sequencer) remember(f frame) {
	r := &s.recent[f.seq%recentSize]
	r.seq, r.sum, r.set = f.seq, xxhash.Sum64(f.payload), true
}

// recalls reports whether a batch with f's sequence was taken lately, and
// whether it was the same.
func (s *sequencer) recalls(f frame) (taken, same bool) {
	r := &s.recent[f.seq%recentSize]
	taken = r.set && r.seq == f.seq
	return taken, taken && r.sum == xxhash.Sum64(f.payload)
}

// isCopy distinguishes a late copy of a batch that came by replay from the first batch
// of a new life: by its digest where that is remembered, else because a
// connection of the same life never goes backwards.
func (s *sequencer) isCopy(f frame) bool {
	if taken, same := s.recalls(f); taken {
		return same
	}
	backwards := f.conn == s.seenConn && f.seq <= s.seenSeq
	return !backwards && f.conn <= s.verified
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
		s.forget()
		s.base(f.seq)
	case first && a.check && f.seq == a.from:
		if _, same := s.recalls(f); !same {
			s.restarted(s.conn)
			s.drain()
			return
		}
		s.verified, s.trial = s.conn, false
		return
	case first && a.check && f.seq >= s.next:
		// Our last batch has left the buffer: whatever is next may be another life's.
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
	if s.cut {
		s.drain()
	}
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
		s.failed(a)
	default:
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
	case a.check && !a.any:
		// A publisher always has its own last batch. This one has less than we applied.
		s.restarted(s.conn)
		s.drain()
		return
	case a.purpose == fresh:
		if !a.any {
			s.forget()
			s.base(0)
		}
		s.owed = false
		s.verified = s.conn
	}
	s.give(a)
}

// failed tries again, or continues without the replay.
func (s *sequencer) failed(a *asked) {
	s.count.ReplayFails++
	if s.next != a.start && a.purpose != fresh || a.any && a.purpose == fresh {
		a.attempt = 0 // it brought something: keep going from there
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

// endless drops what a replay without an end brought, and what was known before. The live
// events go on; history is requested again at the next chance.
func (s *sequencer) endless() {
	s.count.ReplayFails++
	s.lose(s.next)
	s.based, s.owed = false, true
	clear(s.recent[:])
}

// resume continues from a place that an earlier sequencer reached: before next
// everything is applied, the last of it with this digest. The publisher has to
// confirm it at its first answer.
func (s *sequencer) resume(next, digest uint64, whole bool) {
	s.next, s.based, s.whole, s.clean, s.trial = next, true, whole, false, true
	last := &s.recent[(next-1)%recentSize]
	last.seq, last.sum, last.set = next-1, digest, true
}

// giveUpTrial drops what was resumed and never confirmed; the next chance to
// request history is used.
func (s *sequencer) giveUpTrial() {
	if !s.trial {
		return
	}
	s.forget()
	s.based, s.whole, s.owed = false, false, true
	clear(s.recent[:])
	s.ask = nil
	s.drain()
}

// place is where another sequencer could resume.
func (s *sequencer) place() (next, digest uint64, ok bool) {
	if !s.based || s.next == 0 || s.trial {
		return 0, 0, false
	}
	last := &s.recent[(s.next-1)%recentSize]
	return s.next, last.sum, last.set && last.seq == s.next-1
}

// give decides, after the end of a replay, about the hole it was for: if
// nothing came, the gap stays and what was applied before it is dropped.
func (s *sequencer) give(a *asked) {
	if !s.based || a.purpose == fresh || s.next != a.start {
		return
	}
	for _, f := range s.held {
		if f.conn < s.oldest {
			continue
		}
		if f.seq > s.next {
			s.lose(f.seq)
			return
		}
		break
	}
	if a.rejected {
		s.lose(s.next + 1)
	}
}
