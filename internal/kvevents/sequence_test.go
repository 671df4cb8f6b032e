package kvevents

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"warmroute/index"
)

// ledger is a world that records the batches applied since the last forget.
type ledger struct {
	applied []string
	forgets int
	why     index.Loss // of the last one
	bad     map[string]bool
	broken  error // the first batch that did not follow the one before it
}

func (l *ledger) apply(f frame) error {
	if l.bad[string(f.payload)] {
		return errors.New("malformed")
	}
	if n := len(l.applied); n > 0 && l.broken == nil {
		l.broken = follows(l.applied[n-1], string(f.payload))
	}
	l.applied = append(l.applied, string(f.payload))
	return nil
}

func (l *ledger) forget(why index.Loss) { l.applied, l.forgets, l.why = nil, l.forgets+1, why }

// socket is a sequencer behind an event socket: what comes while it waits for a replay is read
// afterwards.
type socket struct {
	*sequencer
	unread []func()
}

func newSocket(l *ledger, replays bool) *socket { return &socket{sequencer: newSequencer(l, replays)} }

func (s *socket) live(f frame) { s.read(func() { s.sequencer.live(f) }) }
func (s *socket) connected(conn uint64) {
	s.latest = conn
	s.read(func() { s.sequencer.connected(conn) })
}

func (s *socket) read(more ...func()) {
	for s.unread = append(s.unread, more...); len(s.unread) > 0 && !s.waits(); {
		next := s.unread[0]
		s.unread = s.unread[1:]
		next()
	}
}

func (s *socket) replied(id uint64, err error) {
	s.sequencer.replied(id, err)
	s.read()
}

func (s *socket) giveUpTrial() {
	s.sequencer.giveUpTrial()
	s.read()
}

// life is one life of a publisher; payloads are "life:seq".
type life struct {
	name   string
	seq    uint64
	buffer []frame
	keep   int
}

func (p *life) publish() frame {
	f := frame{seq: p.seq, payload: fmt.Appendf(nil, "%s:%d", p.name, p.seq)}
	p.seq++
	p.buffer = append(p.buffer, f)
	p.buffer = p.buffer[max(0, len(p.buffer)-p.keep):]
	return f
}

// answer serves the replay the sequencer wants, if any; lose picks replies to drop.
func (p *life) answer(s *socket, lose func(frame) bool) bool {
	a := s.wanted()
	if a == nil {
		return false
	}
	for _, f := range p.buffer {
		if f.seq >= a.from && (lose == nil || !lose(f)) {
			s.reply(a.id, f)
		}
	}
	s.replied(a.id, nil)
	return true
}

func (p *life) settle(s *socket) {
	for p.answer(s, nil) {
	}
}

func on(conn uint64, f frame) frame {
	f.conn = conn
	return f
}

func want(t *testing.T, l *ledger, name string, from, to uint64) {
	t.Helper()
	var w []string
	for q := from; q < to; q++ {
		w = append(w, fmt.Sprintf("%s:%d", name, q))
	}
	if !slices.Equal(l.applied, w) {
		t.Fatalf("applied %v\nwant    %v", l.applied, w)
	}
}

func start(p *life, replays bool) (*socket, *ledger) {
	l := &ledger{bad: map[string]bool{}}
	s := newSocket(l, replays)
	s.connected(1)
	p.settle(s)
	return s, l
}

func newLife(name string, published int) *life {
	p := &life{name: name, keep: 1000}
	for range published {
		p.publish()
	}
	return p
}

func TestSequenceHistoryFirst(t *testing.T) {
	p := newLife("a", 5)
	l := &ledger{}
	s := newSocket(l, true)
	s.connected(1)
	f := p.publish()
	s.live(on(1, f)) // before history has come: held
	if len(l.applied) != 0 {
		t.Fatal("a live event went ahead of history")
	}
	p.settle(s)
	s.live(on(1, p.publish()))
	want(t, l, "a", 0, 7)
	if !s.complete || !s.first || s.count.Gaps != 0 || l.forgets != 0 || s.count.Duplicates != 1 {
		t.Errorf("%+v, %d forgets", s.count, l.forgets)
	}
}

func TestSequenceShortBuffer(t *testing.T) {
	p := newLife("a", 0)
	p.keep = 3
	for range 10 {
		p.publish()
	}
	s, l := start(p, true)
	want(t, l, "a", 7, 10)
	if s.complete || l.forgets != 0 {
		t.Error("a buffer that does not reach the start is no complete history, and no reason to forget")
	}
}

// TestSequenceWithoutBuffer: a publisher that keeps no batches is followed without replays, and
// told of; a new connection may be another life.
func TestSequenceWithoutBuffer(t *testing.T) {
	p := newLife("a", 3)
	p.keep, p.buffer = 0, nil
	s, l := start(p, true)
	for range 3 {
		s.live(on(1, p.publish()))
		p.settle(s)
		s.probe()
		p.settle(s)
	}
	want(t, l, "a", 3, 6)
	if s.unreplayed == "" || s.count.Restarts != 0 || s.complete {
		t.Errorf("%q, %+v", s.unreplayed, s.count)
	}
	p.publish() // is lost
	s.live(on(1, p.publish()))
	p.settle(s)
	want(t, l, "a", 7, 8)
	s.connected(2)
	p.settle(s)
	want(t, l, "a", 0, 0)
	s.live(on(2, p.publish()))
	p.settle(s)
	want(t, l, "a", 8, 9)
}

// TestSequenceAfterAPause: history comes again at the next connection, with the batches
// that were published in the pause, and needs no live event.
func TestSequenceAfterAPause(t *testing.T) {
	p := newLife("a", 5)
	s, l := start(p, true)
	s.live(on(1, p.publish()))
	s.abandon()
	if len(l.applied) != 0 {
		t.Errorf("%v is known in the pause", l.applied)
	}
	p.publish()
	p.publish()
	s.connected(2)
	p.settle(s)
	want(t, l, "a", 0, 8)
}

func TestSequenceGapUnfillable(t *testing.T) {
	p := newLife("a", 3)
	s, l := start(p, true)
	p.keep = 2
	for range 4 {
		p.publish() // 3..6, of which 5 and 6 are kept
	}
	s.live(on(1, p.publish())) // 7; kept: 6, 7
	p.settle(s)
	want(t, l, "a", 6, 8)
	if s.count.Lost != 1 || l.forgets != 1 || l.why != index.LossEvents || s.complete {
		t.Errorf("%+v, %d forgets, %v", s.count, l.forgets, l.why)
	}
}

func TestSequenceWithoutReplay(t *testing.T) {
	p := newLife("a", 3)
	s, l := start(p, false)
	s.live(on(1, p.publish()))
	want(t, l, "a", 3, 4)
	p.publish()
	s.live(on(1, p.publish()))
	want(t, l, "a", 5, 6)
	if s.count.Gaps != 1 || s.count.Lost != 1 || l.forgets != 1 {
		t.Errorf("%+v", s.count)
	}
	b := newLife("b", 0)
	s.connected(2)
	s.live(on(2, b.publish()))
	want(t, l, "b", 0, 1)
	if s.count.Restarts != 1 || l.forgets != 2 {
		t.Errorf("%+v", s.count)
	}
}

func TestSequenceLostTail(t *testing.T) {
	p := newLife("a", 3)
	s, l := start(p, true)
	p.publish()
	s.probe()
	if a := s.ask; a == nil || a.from != 2 {
		t.Fatalf("the probe asks for %+v, want the last, 2, and what follows", a)
	}
	p.settle(s)
	want(t, l, "a", 0, 4)
	// The live copy of a batch that the probe brought is a copy.
	s.live(on(1, p.buffer[3]))
	want(t, l, "a", 0, 4)
	if s.count.Duplicates != 1 || s.count.Restarts != 0 {
		t.Errorf("%+v", s.count)
	}
}

func TestSequenceProbeHoldsNothing(t *testing.T) {
	p := newLife("a", 3)
	s, l := start(p, true)
	s.probe()
	s.live(on(1, p.publish()))
	want(t, l, "a", 0, 4)
	p.publish()
	s.live(on(1, p.publish())) // a gap while the probe is out: it becomes the fill
	want(t, l, "a", 0, 4)
	p.settle(s)
	want(t, l, "a", 0, 6)
	if s.count.Replays != 2 {
		t.Errorf("%d replays, want the first one and the probe", s.count.Replays)
	}
}

// TestSequenceRestart: a new life is found, however it shows, and takes over from its start.
func TestSequenceRestart(t *testing.T) {
	cases := map[string]func(s *socket, a, b *life){
		"seen by the sequence alone": func(s *socket, _, b *life) {
			s.live(on(1, b.publish()))
		},
		"seen at the reconnect, less than before": func(s *socket, _, b *life) {
			s.connected(2)
			b.settle(s)
			s.live(on(2, b.publish()))
		},
		"seen at the reconnect, more than before": func(s *socket, _, b *life) {
			for range 20 {
				b.publish()
			}
			s.connected(2)
			b.settle(s)
		},
		"seen by a probe before the reconnect": func(s *socket, _, b *life) {
			for range 20 {
				b.publish()
			}
			s.probe()
			b.settle(s)
			s.connected(2)
		},
		"seen while a gap is filled": func(s *socket, a, b *life) {
			a.publish()
			s.live(on(1, a.publish()))
			for range 20 {
				b.publish()
			}
			b.settle(s)
			s.connected(2)
		},
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			a, b := newLife("a", 5), newLife("b", 0)
			s, l := start(a, true)
			run(s, a, b)
			b.settle(s)
			want(t, l, "b", 0, b.seq)
			if s.count.Restarts != 1 || l.forgets != 1 || l.why != index.LossRestarted {
				t.Errorf("%+v, %d forgets, %v", s.count, l.forgets, l.why)
			}
		})
	}
}

// TestSequenceUnreadOfTheOldLife: what a life has sent before its end may be read when a replay has
// shown the next one already, and does not stay.
func TestSequenceUnreadOfTheOldLife(t *testing.T) {
	for name, end := range map[string]error{"the new life answers": nil, "the replay breaks off": errors.New("reset")} {
		t.Run(name, func(t *testing.T) {
			a, b := newLife("a", 5), newLife("b", 0)
			s, l := start(a, true)
			a.publish()
			s.live(on(1, a.publish())) // a gap
			w := s.wanted()
			s.live(on(1, a.publish()))
			for range 3 {
				b.publish()
			}
			s.connected(2)
			s.live(on(2, b.publish()))
			s.replied(w.id, end)
			b.settle(s)
			want(t, l, "b", 0, b.seq)
			if len(s.unread) > 0 || s.count.Restarts != 1 || l.forgets != 1 {
				t.Errorf("%d are not read; %+v", len(s.unread), s.count)
			}
		})
	}
}

func TestSequenceReconnectSameLife(t *testing.T) {
	p := newLife("a", 5)
	s, l := start(p, true)
	p.publish()
	s.connected(2)
	f := p.publish()
	s.live(on(2, f))
	p.settle(s)
	s.live(on(2, p.publish()))
	want(t, l, "a", 0, 8)
	if l.forgets != 0 || s.count.Restarts != 0 {
		t.Errorf("%+v, %d forgets: a reconnect alone must not cost anything", s.count, l.forgets)
	}
}

func TestSequenceRejected(t *testing.T) {
	p := newLife("a", 3)
	s, l := start(p, true)
	f := p.publish()
	broken := on(1, f)
	broken.payload = []byte("broken")
	l.bad["broken"] = true
	s.live(broken)
	s.live(on(1, p.publish()))
	p.settle(s)
	want(t, l, "a", 0, 5) // the replayed copy was whole
	if s.count.Rejected != 1 || l.forgets != 0 {
		t.Errorf("%+v", s.count)
	}
	l.bad["a:5"] = true
	s.live(on(1, p.publish()))
	s.live(on(1, p.publish()))
	p.settle(s)
	want(t, l, "a", 6, 7) // rejected twice: the known blocks may be stale
	if s.count.Rejected != 3 || s.count.Lost != 1 || l.forgets != 1 {
		t.Errorf("%+v, %d forgets", s.count, l.forgets)
	}
}

// TestSequenceHoleInReplies: replies dropped at the publisher's high-water mark
// are requested again, as long as that helps.
func TestSequenceHoleInReplies(t *testing.T) {
	p := newLife("a", 40)
	l := &ledger{}
	s := newSocket(l, true)
	s.connected(1)
	dropped := map[uint64]bool{}
	lose := func(f frame) bool {
		once := f.seq%3 == 1 && !dropped[f.seq]
		dropped[f.seq] = true
		return once
	}
	for p.answer(s, lose) {
	}
	want(t, l, "a", 0, 40)
	if l.forgets != 0 || s.count.Lost != 0 {
		t.Errorf("%+v", s.count)
	}
	// Holes of the buffer itself stay holes, and end the asking.
	q := newLife("b", 200)
	q.buffer = slices.DeleteFunc(q.buffer, func(f frame) bool { return f.seq%2 == 1 && f.seq < 198 })
	s, l = start(q, true)
	want(t, l, "b", 198, 200)
	if s.count.Replays > 2*stallLimit+2 {
		t.Errorf("%d replays for one history", s.count.Replays)
	}
}

func TestSequenceReplayFails(t *testing.T) {
	p := newLife("a", 3)
	l := &ledger{}
	s := newSocket(l, true)
	s.connected(1)
	s.live(on(1, p.publish()))
	for a := s.wanted(); a != nil; a = s.wanted() {
		s.replied(a.id, errors.New("refused"))
	}
	want(t, l, "a", 3, 4) // live goes on
	if !s.first || s.complete || s.count.ReplayFails != attemptLimit {
		t.Errorf("first %v, %+v", s.first, s.count)
	}
	s.live(on(1, p.publish()))
	want(t, l, "a", 3, 5)
	s.probe() // and history is still owed
	p.settle(s)
	want(t, l, "a", 0, 5)
	if !s.complete || s.owed {
		t.Error("history came and is not complete")
	}
}

// TestSequenceReplayBreaksOff: the batches before the end are kept and continued.
func TestSequenceReplayBreaksOff(t *testing.T) {
	p := newLife("a", 10)
	l := &ledger{}
	s := newSocket(l, true)
	s.connected(1)
	for range 3 {
		a := s.wanted()
		for i := range 3 {
			s.reply(a.id, p.buffer[int(a.from)+i])
		}
		s.replied(a.id, errors.New("reset"))
	}
	want(t, l, "a", 0, 7)
	p.settle(s)
	want(t, l, "a", 0, 10)
}

func TestSequenceOldRepliesIgnored(t *testing.T) {
	p := newLife("a", 3)
	s, l := start(p, true)
	p.publish()
	s.probe()
	old := s.wanted()
	s.connected(2)
	s.reply(old.id, p.buffer[2])
	s.reply(old.id, p.buffer[3])
	s.replied(old.id, errors.New("cancelled"))
	if len(l.applied) != 3 || s.ask == nil {
		t.Fatal("an abandoned replay was heard")
	}
	p.settle(s)
	want(t, l, "a", 0, 4)
}

// follows reports whether b is the batch after a, of the same life.
func follows(a, b string) error {
	la, na, _ := strings.Cut(a, ":")
	lb, nb, _ := strings.Cut(b, ":")
	x, errA := strconv.Atoi(na)
	y, errB := strconv.Atoi(nb)
	if errA != nil || errB != nil || la != lb || y != x+1 {
		return fmt.Errorf("%s follows %s", b, a)
	}
	return nil
}
