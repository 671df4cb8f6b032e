package kvevents

import (
	"errors"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// resumed goes on from the first n batches of p, which l is taken to hold.
func resumed(p *life, n uint64) (*socket, *ledger) {
	l := &ledger{bad: map[string]bool{}}
	for _, f := range p.buffer[:n] {
		l.applied = append(l.applied, string(f.payload))
	}
	s := newSocket(l, true)
	s.resume(n, xxhash.Sum64(p.buffer[n-1].payload), true)
	return s, l
}

func TestResumeFillsTheGap(t *testing.T) {
	p := newLife("a", 5)
	s, l := resumed(p, 3)
	if _, _, ok := s.place(); ok {
		t.Error("a place is handed on before the publisher has confirmed it")
	}
	s.connected(1)
	s.live(on(1, p.publish())) // waits for the gap
	p.settle(s)
	s.live(on(1, p.publish()))
	want(t, l, "a", 0, 7)
	if l.forgets != 0 || !s.complete || !s.first {
		t.Errorf("forgot %d times, complete %v, caught up %v", l.forgets, s.complete, s.first)
	}
	if next, digest, ok := s.place(); !ok || next != 7 || digest != xxhash.Sum64([]byte("a:6")) {
		t.Errorf("place %d %x %v", next, digest, ok)
	}
}

// TestResumeForgetsAnotherLife: whatever the sequences of the new life are.
func TestResumeForgetsAnotherLife(t *testing.T) {
	for _, published := range []int{0, 2, 3, 4, 9} {
		s, l := resumed(newLife("a", 3), 3)
		p := newLife("b", published)
		s.connected(1)
		p.settle(s)
		s.live(on(1, p.publish()))
		p.settle(s)
		if l.forgets == 0 {
			t.Errorf("%d batches of a new life: what the old one held is still there", published)
		}
		want(t, l, "b", 0, uint64(published)+1)
	}
}

// TestResumeForgetsWhatTheBufferNoLongerReaches.
func TestResumeForgetsWhatTheBufferNoLongerReaches(t *testing.T) {
	p := newLife("a", 3)
	s, l := resumed(p, 3)
	p.keep = 4
	for range 6 {
		p.publish()
	}
	s.connected(1)
	p.settle(s)
	want(t, l, "a", 5, 9)
	if l.forgets != 1 || s.complete {
		t.Errorf("forgot %d times, complete %v", l.forgets, s.complete)
	}
}

// TestResumeForgetsWhatNobodyConfirms: replays that fail, or time that is up.
func TestResumeForgetsWhatNobodyConfirms(t *testing.T) {
	for name, end := range map[string]func(s *socket){
		"replays fail": func(s *socket) {
			for a := s.wanted(); a != nil; a = s.wanted() {
				s.replied(a.id, errors.New("nobody answers"))
			}
		},
		"time is up": func(s *socket) { s.giveUpTrial() },
	} {
		p := newLife("a", 3)
		s, l := resumed(p, 3)
		s.connected(1)
		s.live(on(1, p.publish()))
		end(s)
		if l.forgets != 1 || !s.owed {
			t.Errorf("%s: forgot %d times, history owed %v", name, l.forgets, s.owed)
		}
		if no := s.unreplayed == ""; no == (name == "replays fail") {
			t.Errorf("%s: no replay, because %q", name, s.unreplayed)
		}
		want(t, l, "a", 3, 4) // the waiting events are taken, from a base of their own
		s.probe()
		p.settle(s)
		if want(t, l, "a", 0, 4); s.unreplayed != "" {
			t.Errorf("%s: replayed, and %q", name, s.unreplayed)
		}
		s.giveUpTrial()
		want(t, l, "a", 0, 4)
	}
}
