package faults

import (
	"context"
	"testing"
	"time"

	"warmroute/internal/kvevents/kvtest"
)

// TestStormOutages: after an outage of the index, and after one of every vLLM,
// during which caches changed, the index is exact again within two seconds of
// the reconnection.
func TestStormOutages(t *testing.T) {
	s := newStorm(t)
	s.nodes = s.nodes[:5] // the nodes with whole histories
	away := s.limits.round / 4
	near, far := s.paths[0], s.paths[1]
	near.nodes, far.nodes = s.nodes, s.nodes
	for _, p := range s.paths {
		for _, n := range s.nodes {
			p.join(n.source())
		}
		defer func() {
			for _, n := range s.nodes {
				p.leave(n.holder)
			}
		}()
	}
	s.change()
	s.exact(0, "before any outage", true)

	far.stop()
	s.change()
	time.Sleep(away) // the outage
	far.serve(far.addr)
	s.recovered(far, <-far.connected, "the index")

	for _, n := range s.nodes {
		n.pub.Close()
		n.truth.clear(time.Now())
	}
	time.Sleep(away) // the outage
	for _, n := range s.nodes {
		o := n.o
		o.Address, o.ReplayAddr = n.pub.Address(), n.pub.ReplayAddress()
		var err error
		if n.pub, err = kvtest.Start(o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.pub.Close)
	}
	s.change()
	joined, cancel := context.WithTimeout(t.Context(), s.limits.joined)
	defer cancel()
	for _, n := range s.nodes {
		if err := n.pub.WaitSubscribers(joined, len(s.paths)); err != nil {
			t.Fatalf("%s: no subscribers: %v", n.holder.Replica, err)
		}
	}
	back := time.Now()
	for _, p := range s.paths {
		s.recovered(p, back, "every vLLM")
	}
}

// changes of every cache between two outages.
const changes = 40

// change has every cache change, without faults.
func (s *storm) change() {
	for _, n := range s.nodes {
		for range changes {
			if n.rng.IntN(3) == 0 {
				n.evict()
			} else {
				n.extend(&s.prompts.chains[n.rng.IntN(chains)])
			}
		}
	}
}

// recovered waits until the path's index equals the truth.
func (s *storm) recovered(p *path, since time.Time, of string) {
	s.t.Helper()
	for {
		err := p.wrong(true)
		took := time.Since(since)
		if err == nil {
			s.t.Logf("%s: exact %v after the reconnection of %s", p.name, took.Round(time.Millisecond), of)
			return
		}
		if took > s.limits.settled {
			s.t.Fatalf("%v after the reconnection of %s: %v", took, of, err)
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}
