package shortfall

import (
	"math/rand/v2"
	"testing"
	"time"
)

// served is a replica that requests are sent to, on a virtual clock: it counts a
// hit when it starts a request, and its page is read once a second.
type served struct {
	w     *Watch
	rng   *rand.Rand
	now   time.Duration
	to    []request
	sent  int
	began float64 // tokens of hits so far
	asked float64 // tokens looked up so far

	lookedUp float64 // tokens that are counted as looked up for each that is claimed
	read     Reading
	same     bool // all prompts have one first block
}

type request struct {
	start, end time.Duration // when the engine starts it, when it ends
	claim, hit float64
	counted    bool
}

const addr = "10.0.0.1:8000"

func newServed() *served {
	return &served{w: New(), lookedUp: 1, rng: rand.New(rand.NewPCG(1, 2)), read: Reading{Replica: addr, Joined: 1, Page: epoch}}
}

var epoch = time.Unix(1_700_000_000, 0)

// send sends n requests, one every gap, each of which waits up to wait and takes up
// to takes. The claim of each is up to 4,000 tokens; hit is the share that is found.
func (s *served) send(n int, gap, wait, takes time.Duration, hit float64) (flagged int) {
	for range n {
		start := s.now + s.upTo(wait)
		claim := float64(16 * (1 + s.rng.IntN(250)))
		s.to = append(s.to, request{start: start, end: start + s.upTo(takes), claim: claim, hit: hit * claim})
		s.sent++
		s.read.Open += claim
		for until := s.now + gap; s.now < until; {
			s.step()
			if flagged == 0 && s.w.State(addr).Flagged {
				flagged = s.sent
			}
		}
	}
	return flagged
}

func (s *served) upTo(d time.Duration) time.Duration {
	return time.Duration(s.rng.Int64N(int64(d) + 1))
}

// step passes 100 ms. The page is read at the beginning of each second, claims are
// compared in the middle.
func (s *served) step() {
	s.now += 100 * time.Millisecond
	for i := range s.to {
		r := &s.to[i]
		if !r.counted && r.start <= s.now {
			s.began += r.hit
			s.asked += s.lookedUp * r.claim
			r.counted = true
		}
	}
	kept := s.to[:0]
	for _, r := range s.to {
		if r.end > s.now || !r.counted {
			kept = append(kept, r)
			continue
		}
		s.settle(r)
	}
	s.to = kept
	switch s.now % time.Second {
	case 0:
		s.read.Hits, s.read.Queries, s.read.Page = s.began, s.asked, epoch.Add(s.now)
	case 500 * time.Millisecond:
		s.w.Look(epoch.Add(s.now), []Reading{s.read})
	}
}

func (s *served) settle(r request) {
	s.read.Open -= r.claim
	s.read.Predicted += r.claim
	s.read.Requests++
	if !s.same {
		s.read.Heads++
	}
}

// TestOneFirstBlockIsOneVoteByCounters: a burst of constructed prompts with one first block raises
// no doubt at once.
func TestOneFirstBlockIsOneVoteByCounters(t *testing.T) {
	s := newServed()
	s.same = true
	if at := s.send(78, 100*time.Millisecond, 0, time.Second, 0); at != 0 {
		t.Errorf("flagged after %d requests", at)
	}
}

// TestALiarIsNamedWithin50Requests: also where its requests come in a hurry, and
// after it was honest for long.
func TestALiarIsNamedWithin50Requests(t *testing.T) {
	for name, gap := range map[string]time.Duration{"one a second": time.Second, "ten a second": 100 * time.Millisecond, "one in a minute": time.Minute} {
		for _, honest := range []int{0, 500} {
			s := newServed()
			if at := s.send(honest, gap, 0, time.Second, 1); at != 0 {
				t.Fatalf("%s: flagged after %d honest requests", name, at)
			}
			if at := s.send(100, gap, 0, 100*time.Millisecond, 0); at == 0 || at-honest > 50 {
				t.Errorf("%s: flagged after %d requests, %d of them honest", name, at, honest)
			}
			// It lies on: it is not believed again.
			s.send(200, gap, 0, 100*time.Millisecond, 0)
			if !s.w.State(addr).Flagged {
				t.Errorf("%s: a liar is believed again", name)
			}
			s.send(100, gap, 0, 100*time.Millisecond, 1)
			if s.w.State(addr).Flagged {
				t.Errorf("%s: it has recovered, and is not believed", name)
			}
		}
	}
}

// TestHonestReplicasAreNotDoubted: bursts that wait for long, generations that take
// minutes, and hits of seven tenths of the claims.
func TestHonestReplicasAreNotDoubted(t *testing.T) {
	for name, c := range map[string]struct {
		gap, wait, takes time.Duration
		hit              float64
	}{
		"steady":               {100 * time.Millisecond, 0, time.Second, 1},
		"evicted in part":      {100 * time.Millisecond, time.Second, time.Second, 0.7},
		"long generations":     {100 * time.Millisecond, 0, 3 * time.Minute, 1},
		"a long queue":         {100 * time.Millisecond, 30 * time.Second, 30 * time.Second, 1},
		"others' hits as well": {time.Second, time.Second, time.Second, 20},
	} {
		s := newServed()
		for range 10 { // bursts, with nothing between them
			if at := s.send(200, c.gap, c.wait, c.takes, c.hit); at != 0 {
				t.Errorf("%s: flagged after %d requests", name, at)
				break
			}
			for range 2000 {
				s.step()
			}
		}
	}
}
