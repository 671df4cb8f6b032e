package peers

import (
	"fmt"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/load"
	"warmroute/render/testkit/must"
)

// heard is a fleet that records the calls it gets.
type heard struct {
	prefixes []decision.Prefix
	gone     []string
	pressure *decision.Pressure
	now      func() time.Time
}

func (h *heard) Receive(p decision.Prefix)    { h.prefixes = append(h.prefixes, p) }
func (h *heard) Gone(router string)           { h.gone = append(h.gone, router) }
func (h *heard) Raise(model string)           { h.pressure.Raise(model, h.now()) }
func (h *heard) Pressure() *decision.Pressure { return h.pressure }

// node is one router of a mesh, on its clock.
type node struct {
	m       *Machine
	ledger  *load.Ledger
	outbox  *Outbox
	fleet   *heard
	book    *policy.Book
	charges []*load.Charge
	cut     bool // the router neither receives messages nor has its own delivered
}

// mesh is a fleet of routers on virtual time: a message arrives at once unless it
// is lost.
type mesh struct {
	t     testing.TB
	now   time.Time
	nodes []*node
	lose  func() bool
}

func newMesh(t testing.TB, n int) *mesh {
	t.Helper()
	w := &mesh{t: t, now: time.Unix(1_700_000_000, 0), lose: func() bool { return false }}
	for i := range n {
		w.nodes = append(w.nodes, w.node(fmt.Sprintf("r%d", i), uint64(i+1)))
	}
	return w
}

func (w *mesh) node(id string, epoch uint64) *node {
	w.t.Helper()
	book := must.Get(policy.NewBook(policy.Config{}))(w.t)
	n := &node{
		ledger: load.NewLedger(func() time.Time { return w.now }), outbox: NewOutbox(), book: book,
		fleet: &heard{pressure: decision.NewPressure(), now: func() time.Time { return w.now }},
	}
	for i := range 4 {
		n.ledger.Of(replica(i))
	}
	n.m = New(Options{ID: id, Epoch: epoch, Ledger: n.ledger, Fleet: n.fleet, Book: book, Outbox: n.outbox})
	return n
}

func replica(i int) index.Holder { return index.Holder{Replica: fmt.Sprintf("10.0.0.%d:8000", i+1)} }

// charge puts a request on a replica.
func (n *node) charge(now time.Time, i int) *load.Charge {
	c := new(load.Charge)
	n.ledger.Lock()
	c.Put(n.ledger.Of(replica(i)), load.Terms{Sent: now.UnixNano(), Due: now.Add(time.Hour).UnixNano(), Model: 1e8, Expected: 1e8, Tokens: 1000})
	n.ledger.Unlock()
	n.charges = append(n.charges, c)
	return c
}

// settle moves messages until no node has a message to send.
func (w *mesh) settle() {
	w.t.Helper()
	for range 100 {
		quiet := true
		for _, n := range w.nodes {
			select {
			case <-n.outbox.Ready():
			default:
				if !n.m.Tick(w.now) {
					continue
				}
			}
			if b := n.m.Write(w.now); b != nil {
				quiet = false
				w.send(n, b)
			}
		}
		if quiet {
			return
		}
	}
	w.t.Fatal("the routers do not stop talking")
}

func (w *mesh) send(from *node, b []byte) {
	for _, to := range w.nodes {
		if to == from || to.cut || from.cut || w.lose() {
			continue
		}
		if err := to.m.Read(w.now, b); err != nil {
			w.t.Errorf("%v", err)
		}
	}
}

// pass advances time in steps.
func (w *mesh) pass(d time.Duration) {
	w.t.Helper()
	for ; d > 0; d -= 100 * time.Millisecond {
		w.now = w.now.Add(100 * time.Millisecond)
		w.settle()
	}
}

// others returns n's count of other routers' requests in flight on all replicas.
func (n *node) others() (requests int64) {
	for _, a := range n.ledger.All() {
		for _, s := range a.Others() {
			requests += s.Requests
		}
	}
	return requests
}

func (n *node) own() (requests int64) {
	for _, a := range n.ledger.All() {
		requests += int64(a.InFlight())
	}
	return requests
}

// agree fails unless every router counts all requests of the others.
func (w *mesh) agree(when string) {
	w.t.Helper()
	total := int64(0)
	for _, n := range w.nodes {
		total += n.own()
	}
	for i, n := range w.nodes {
		if got, want := n.others(), total-n.own(); got != want {
			w.t.Errorf("%s: router %d counts %d requests of others, there are %d", when, i, got, want)
		}
	}
}
