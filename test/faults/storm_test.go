package faults

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"warmroute/internal/kvevents/kvtest"
)

var (
	form = flag.String("storm", "short", "short, or long for minutes on a machine of its own")
	seed = flag.Uint64("storm.seed", 0, "repeat the choices of this seed; 0 = a new one")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limits of a storm's form.
type limits struct {
	rounds  int
	round   time.Duration
	pace    time.Duration // between two steps of a publisher
	joined  time.Duration // a subscriber whose connections break again and again waits up to 5 s for the next
	settled time.Duration // after the last batch the index equals the truth
	late    time.Duration // beyond the window, before a hint counts as stale
}

// limitsOf allows, in the short form, for a machine that other tests and the race
// detector keep busy; the long form has the promised limits.
func limitsOf(t *testing.T) limits {
	t.Helper()
	switch *form {
	case "short":
		return limits{rounds: 2, round: 2 * time.Second, pace: 8 * time.Millisecond, joined: 20 * time.Second, settled: 20 * time.Second, late: 2 * time.Second}
	case "long":
		return limits{rounds: 20, round: 15 * time.Second, pace: 4 * time.Millisecond, joined: 20 * time.Second, settled: 2 * time.Second, late: 150 * time.Millisecond}
	}
	t.Fatalf("-storm %q: want short or long", *form)
	return limits{}
}

func seeded(t *testing.T) uint64 {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("repeat with -storm=%s -storm.seed=%d", *form, s)
	return s
}

// steps is the maximum number of steps of a publisher: one at a time, with a
// pause after each, and those outside the rounds.
func (l limits) steps() int { return l.rounds * (int(l.round/l.pace) + beside) }

// beside is more than the steps outside the rounds: three batches at the end of each, or
// two prompts.
const beside = 120

// storm is eight publishers and both paths from them.
type storm struct {
	t       *testing.T
	limits  limits
	prompts *prompts
	nodes   []*node
	paths   []*path
	rng     *rand.Rand
}

func newStorm(t *testing.T) *storm {
	t.Helper()
	s := &storm{t: t, limits: limitsOf(t), prompts: newPrompts()}
	first := seeded(t)
	s.rng = rand.New(rand.NewPCG(first, 1000))
	for i := range nodeOptions {
		s.nodes = append(s.nodes, newNode(t, i, first, s.prompts, s.limits.steps()))
	}
	s.paths = []*path{inProcess(t, s.nodes), throughSidecars(t, s.nodes)}
	return s
}

// TestStorm: under all faults at once no hint outlives its event, from the moment
// the subscriber receives it, by more than the debounce window, and once the
// storm is over the index equals the truth within two seconds.
func TestStorm(t *testing.T) {
	s := newStorm(t)
	start := time.Now()
	t.Logf("%d rounds, %v of faults in each", s.limits.rounds, s.limits.round)
	watching, stop := context.WithCancel(context.Background())
	var watchers sync.WaitGroup
	for _, p := range s.paths {
		watchers.Go(func() { p.watch(watching, s.prompts) })
	}
	for round := range s.limits.rounds {
		s.blow(round)
		s.calm(round)
	}
	stop()
	watchers.Wait()
	s.total(time.Since(start))
	for _, p := range s.paths {
		for _, n := range s.nodes {
			p.leave(n.holder)
		}
		allowed := time.Duration(0) // in process it ends before Apply returns
		if p.client != nil {
			allowed = window + s.limits.late
		}
		t.Logf("%s: %d pauses, %d subscribers replaced, %d indexes lost; %d holes not filled; %d matches looked at; the longest that one outlived what was told %v, the truth at the publisher %v", p.name, p.pauses, p.replaced, p.lost, p.holes, p.hints, p.heard, p.truth)
		if p.rests > 0 {
			t.Errorf("%s: publishers were left alone %d times, though all of their batches can be decoded", p.name, p.rests)
		}
		if p.heard > allowed {
			t.Errorf("%s: a hint outlived its event by %v, more than %v", p.name, p.heard, allowed)
		}
		if p.hints == 0 {
			t.Errorf("%s: nothing was ever matched: nothing was tested", p.name)
		}
	}
}

// total prints the publishers' actions, and checks that publishers with their whole
// history had room for it.
func (s *storm) total(took time.Duration) {
	s.t.Helper()
	var all tally
	busiest := 0
	for _, n := range s.nodes {
		all.add(n.tally)
		busiest = max(busiest, n.tally.published)
		if !n.lossy && n.tally.published > n.o.BufferSteps {
			s.t.Errorf("%s published %d batches and keeps %d: no whole history", n.holder.Replica, n.tally.published, n.o.BufferSteps)
		}
	}
	s.t.Logf("%d rounds in %v: %d batches from %d publishers, %d at most from one, which may keep %d; live copies: %d dropped, %d late, %d gone for good; %d times cut off, %d new lives, %d caches cleared",
		s.limits.rounds, took.Round(time.Second), all.published, len(s.nodes), busiest, s.limits.steps(), all.dropped, all.held, all.lost, all.cutOff, all.restarts, all.resets)
	if all.dropped == 0 || all.held == 0 || all.restarts+all.resets+all.cutOff == 0 {
		s.t.Errorf("no storm: %+v", all)
	}
}

// blow is one round: publishers are driven, subscribers join late, stand still
// and are replaced, the index behind the service is lost.
func (s *storm) blow(round int) {
	end := time.Now().Add(s.limits.round)
	var running sync.WaitGroup
	for _, n := range s.nodes {
		n.faulty(true, s.rng.Uint64())
		running.Go(func() {
			for time.Now().Before(end) {
				n.step()
				time.Sleep(s.limits.pace) // the rate of the storm
			}
		})
	}
	for _, p := range s.paths {
		rng := rand.New(rand.NewPCG(s.rng.Uint64(), 0))
		running.Go(func() { s.trouble(p, rng, round, end) })
	}
	running.Wait()
}

// trouble befalls the subscribers of one path until end.
func (s *storm) trouble(p *path, rng *rand.Rand, round int, end time.Time) {
	some := func() time.Duration { return time.Duration(rng.Int64N(int64(s.limits.round / 10))) }
	if round == 0 { // slow joiners: history is there before anybody listens
		for _, i := range rng.Perm(len(s.nodes)) {
			time.Sleep(some() / 2)
			p.join(s.nodes[i].source())
		}
	}
	for time.Now().Add(s.limits.round / 5).Before(end) {
		n := s.nodes[rng.IntN(len(s.nodes))]
		switch rng.IntN(5) {
		case 0, 1: // the subscriber is paused
			f := p.follow[n.holder]
			f.pause.Lock()
			time.Sleep(some())
			f.pause.Unlock()
			p.pauses++
		case 2, 3: // it is replaced
			p.leave(n.holder)
			time.Sleep(some())
			p.join(n.source())
			p.replaced++
		case 4: // the index is lost with its content
			if p.client == nil {
				continue
			}
			p.newIndex() // a lost index no longer answers
			p.stop()
			time.Sleep(some())
			p.serve(p.addr)
			p.lost++
		}
		time.Sleep(some())
	}
}

// calm ends a round: every publisher sends one more batch, of which some are
// lost; then the index is compared with the truth. Publishers whose history was
// lost are reset, and then no difference is left.
func (s *storm) calm(round int) {
	s.t.Helper()
	connected, cancel := context.WithTimeout(context.Background(), s.limits.joined)
	defer cancel()
	for i, n := range s.nodes {
		n.pub.Fault(nil)
		// A batch that is neither received nor replayed stays unknown.
		if err := n.pub.WaitSubscribers(connected, len(s.paths)); err != nil {
			s.t.Fatalf("round %d: %s: no subscribers: %v", round+1, n.holder.Replica, err)
		}
		if n.o.NoReplay {
			s.gaps(n)
		}
		n.nudge()
		if !n.lossy && i%2 == 0 { // a lost last batch shows no gap
			n.pub.Fault(func(uint64) kvtest.Fate { n.tally.dropped++; return kvtest.Drop })
			n.nudge()
			n.pub.Fault(nil)
		}
	}
	s.exact(round, "after the last batch", false)
	for _, n := range s.nodes {
		if n.lossy {
			n.reset()
		}
	}
	s.exact(round, "after the resets", true)
}

// gaps has the live copy of every other batch lost.
func (s *storm) gaps(n *node) {
	for range 10 {
		n.pub.Fault(func(uint64) kvtest.Fate { n.tally.dropped++; return kvtest.Drop })
		n.nudge()
		n.pub.Fault(nil)
		n.nudge()
	}
}

func (s *storm) exact(round int, when string, whole bool) {
	s.t.Helper()
	last := time.Now()
	for _, p := range s.paths {
		var err error
		for err = p.wrong(whole); err != nil && time.Since(last) < s.limits.settled; err = p.wrong(whole) {
			time.Sleep(5 * time.Millisecond) // between two looks
		}
		took := time.Since(last)
		if err != nil {
			for h, f := range p.follow {
				s.t.Logf("%s: %s: %+v", p.name, h.Replica, f.sub.Status())
			}
			s.t.Fatalf("round %d, %v %s: %v", round+1, took, when, err)
		}
		s.t.Logf("round %d of %d, %s: exact %s in %v", round+1, s.limits.rounds, p.name, when, took.Round(time.Millisecond))
	}
}
