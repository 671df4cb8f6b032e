package kvevents

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"warmroute/render/testkit/race"
)

// TestSequenceStorm: under random losses, reconnects, restarts, bad payloads and broken
// replays, the batches applied since the last forget are at every moment one unbroken
// stretch of one life, and after calm the stretch ends where the publisher does.
func TestSequenceStorm(t *testing.T) {
	seeds := uint64(400)
	if race.Enabled {
		seeds = 100 // one goroutine alone works here
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 7))
		chance := func(percent int) bool { return rng.IntN(100) < percent }
		p := newLife("0", 0)
		p.seq = (1 - seed%2) * 1_000_000
		p.keep = []int{2, 10, 1000}[rng.IntN(3)]
		l := &ledger{bad: map[string]bool{}}
		s := newSocket(l, chance(90))
		conn, lives := uint64(1), 0
		s.connected(conn)
		check := func(what string) {
			t.Helper()
			if l.broken != nil {
				t.Fatalf("seed %d, after %s: %v", seed, what, l.broken)
			}
		}
		for range 300 {
			switch {
			case chance(3):
				lives++
				// Lives never meet at a sequence by chance: where a reconnect cannot be
				// verified, that chance is taken (see step).
				p = &life{name: fmt.Sprint(lives), keep: p.keep, seq: uint64(1000 * lives)}
				if seed%2 == 0 {
					p.seq = uint64(1000 * (1000 - lives))
				}
				conn++
				for range rng.IntN(30) {
					p.publish()
				}
				s.connected(conn)
				check("a restart")
			case chance(4):
				conn++
				s.connected(conn)
				check("a reconnect")
			case chance(10):
				s.probe()
			}
			f := p.publish()
			if chance(2) {
				l.bad[string(f.payload)] = true
			}
			if !chance(10) {
				s.live(on(conn, f))
				check("a live event")
			}
			if chance(60) {
				serve(p, s, rng)
				check("a replay")
			}
		}
		for range 10 {
			p.settle(s)
			s.live(on(conn, p.publish()))
			s.probe()
			p.settle(s)
		}
		check("calm")
		if end := fmt.Sprintf("%s:%d", p.name, p.seq-1); len(l.applied) == 0 || l.applied[len(l.applied)-1] != end {
			t.Fatalf("seed %d: the last applied is not %s: %v", seed, end, l.applied[max(0, len(l.applied)-3):])
		}
	}
}

// serve answers a wanted replay, or breaks it off, or loses replies.
func serve(p *life, s *socket, rng *rand.Rand) {
	a := s.wanted()
	if a == nil {
		return
	}
	breakAt, dropping := -1, rng.IntN(4) == 0
	if rng.IntN(4) == 0 {
		breakAt = rng.IntN(5)
	}
	for i, f := range p.buffer {
		if i == breakAt {
			s.replied(a.id, errors.New("reset"))
			return
		}
		if f.seq >= a.from && (!dropping || rng.IntN(5) != 0) {
			s.reply(a.id, f)
		}
	}
	s.replied(a.id, nil)
}
