package brain

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"warmroute/internal/peers"
	"warmroute/lab/simulator"
)

// Routers are several brains of one fleet. Each decides for a part of the requests, and
// peers.Machine sends messages between them, which arrive after delay.
type Routers struct {
	all   []*router
	rng   *rand.Rand
	of    map[int]*router // by request id
	delay float64
	wire  []envelope // in the order they arrive
	tick  float64

	Messages, Bytes int // sent; a message to several routers counts once
}

// router is one brain and its side of the protocol.
type router struct {
	inProcess
	outbox  *peers.Outbox
	machine *peers.Machine // nil: the router shares nothing
}

// envelope is a message on its way to all routers but one.
type envelope struct {
	at   float64
	from *router
	text []byte
}

// tickEvery is how often a machine looks at the clock, in seconds.
const tickEvery = 0.1

// NewRouters returns n brains whose messages take delay seconds; below 0 they send none.
func NewRouters(n int, delay float64, o Options) (*Routers, error) {
	rs := &Routers{rng: rand.New(rand.NewPCG(o.Seed, 77)), of: map[int]*router{}, delay: delay}
	parents := map[int64]int64{}
	for i := range n {
		r := &router{inProcess: inProcess{}}
		one := o
		one.Seed = o.Seed ^ uint64(i+1)*0x9E3779B97F4A7C15
		if delay >= 0 && n > 1 {
			r.outbox = peers.NewOutbox()
			one.Peers = r.outbox
		}
		var err error
		if r.b, err = New(one); err != nil {
			return nil, err
		}
		r.b.parents = parents // the contents of events are the same for all
		if r.outbox != nil {
			r.machine = peers.New(peers.Options{
				ID: fmt.Sprintf("router-%d", i), Epoch: uint64(i + 1), Ledger: r.b.ledger, Fleet: r.b.decider, Outbox: r.outbox,
			})
		}
		rs.all = append(rs.all, r)
	}
	return rs, nil
}

// Close frees the brains' memory.
func (rs *Routers) Close() {
	for _, r := range rs.all {
		r.b.Close()
	}
}

// until delivers the messages that arrive by now, each at its time.
func (rs *Routers) until(now float64) {
	for len(rs.wire) > 0 && rs.wire[0].at <= now {
		l := rs.wire[0]
		rs.wire = slices.Delete(rs.wire, 0, 1)
		for _, r := range rs.all {
			if r != l.from {
				r.b.To(l.at)
				must(r.machine.Read(r.b.now, l.text))
				rs.send(l.at, r)
			}
		}
	}
	if now-rs.tick >= tickEvery {
		rs.tick = now
		for _, r := range rs.all {
			r.b.To(now)
			if r.b.tickets != nil {
				r.b.decider.WakeHeld()
			}
			if r.machine != nil && r.machine.Tick(r.b.now) {
				r.outbox.Notify()
			}
			rs.send(now, r)
		}
	}
	for _, r := range rs.all {
		r.b.To(now)
	}
}

// send puts a router's messages on the wire.
func (rs *Routers) send(now float64, r *router) {
	if r.machine == nil {
		return
	}
	select {
	case <-r.outbox.Ready():
	default:
		return
	}
	if text := r.machine.Write(r.b.now); text != nil {
		rs.wire = append(rs.wire, envelope{now + rs.delay, r, slices.Clone(text)})
		rs.Messages++
		rs.Bytes += len(text)
	}
}

// Route implements simulator.Policy: Envoy gives each request to any router, which keeps it while
// it is held.
func (rs *Routers) Route(now float64, q *simulator.Request) int {
	rs.until(now)
	r := rs.of[q.ID]
	if r == nil {
		r = rs.all[rs.rng.IntN(len(rs.all))]
		rs.of[q.ID] = r
	}
	to := r.Route(now, q)
	rs.send(now, r)
	return to
}

// Routed implements simulator.Policy.
func (rs *Routers) Routed(now float64, q *simulator.Request) { rs.of[q.ID].Routed(now, q) }

// First implements simulator.Policy.
func (rs *Routers) First(now float64, q *simulator.Request) {
	rs.until(now)
	r := rs.of[q.ID]
	r.First(now, q)
	rs.send(now, r)
}

// Done implements simulator.Policy.
func (rs *Routers) Done(now float64, q *simulator.Request) {
	rs.until(now)
	r := rs.of[q.ID]
	r.Done(now, q)
	rs.send(now, r)
	delete(rs.of, q.ID)
}

// Stored implements simulator.Policy: every router receives every event.
func (rs *Routers) Stored(now float64, replica int, blocks []int32) {
	rs.until(now)
	for _, r := range rs.all {
		r.Stored(now, replica, blocks)
		rs.send(now, r)
	}
}

// Removed implements simulator.Policy.
func (rs *Routers) Removed(now float64, replica int, blocks []int32) {
	rs.until(now)
	for _, r := range rs.all {
		r.Removed(now, replica, blocks)
	}
}

// Scraped implements simulator.Policy.
func (rs *Routers) Scraped(now float64, pages []simulator.Page) {
	rs.until(now)
	for _, r := range rs.all {
		r.Scraped(now, pages)
	}
}

// InFlight returns each router's count of requests in flight on all replicas, with those
// of its peers.
func (rs *Routers) InFlight() (counts []int) {
	for _, r := range rs.all {
		n := 0
		for _, a := range r.b.ledger.All() {
			n += a.InFlight()
			for _, s := range a.Others() {
				n += int(s.Requests)
			}
		}
		counts = append(counts, n)
	}
	return counts
}
