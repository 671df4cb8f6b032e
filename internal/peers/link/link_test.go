package link

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/load"
	"warmroute/internal/peers"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// linked is one router with a real Link.
type linked struct {
	link   *Link
	ledger *load.Ledger
	fleet  *quiet
	stop   func()
}

// quiet is a fleet for several goroutines.
type quiet struct {
	mu       sync.Mutex
	prefixes int
	pressure *decision.Pressure
}

func (q *quiet) Raise(string)                 {}
func (q *quiet) Gone(string)                  {}
func (q *quiet) Pressure() *decision.Pressure { return q.pressure }
func (q *quiet) Receive(decision.Prefix) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.prefixes++
}

// text is a log to look at.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *text) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *text) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func start(t *testing.T, c Config, log *slog.Logger) *linked {
	t.Helper()
	return startWith(t, c, newDiscovery(c), log)
}

func startWith(t *testing.T, c Config, found *discovery, log *slog.Logger) *linked {
	t.Helper()
	book := must.Get(policy.NewBook(policy.Config{}))(t)
	r := &linked{ledger: load.NewLedger(nil), fleet: &quiet{pressure: decision.NewPressure()}}
	for i := range 4 {
		r.ledger.Of(replica(i))
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r.link = must.Get(open(c, found, peers.Options{Outbox: peers.NewOutbox(), Ledger: r.ledger, Fleet: r.fleet, Book: book}, log))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.link.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	r.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(r.stop)
	return r
}

// cluster starts n routers that cluster by themselves; each has the first's address.
func cluster(t *testing.T, n int, change func(*Config)) (all []*linked) {
	t.Helper()
	for i := range n {
		c := DefaultConfig()
		c.ID, c.Listen = fmt.Sprintf("r%d", i), "127.0.0.1:0"
		if change != nil {
			change(&c)
		}
		if i > 0 {
			c.Routes = []string{all[0].link.Addr()}
		}
		all = append(all, start(t, c, nil))
	}
	return all
}

// within waits until a condition holds; it hangs only if the condition never holds.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	testenv.Until(t, time.Minute, what, is)
}

func (r *linked) peers() int { return len(r.link.State().Peers) }

func replica(i int) index.Holder { return index.Holder{Replica: fmt.Sprintf("10.0.0.%d:8000", i+1)} }

// charge puts a request on a replica.
func (r *linked) charge(i int) *load.Charge {
	c, now := new(load.Charge), time.Now()
	r.ledger.Lock()
	defer r.ledger.Unlock()
	c.Put(r.ledger.Of(replica(i)), load.Terms{Sent: now.UnixNano(), Due: now.Add(time.Hour).UnixNano(), Model: 1e8, Expected: 1e8, Tokens: 1000})
	return c
}

// others returns r's count of other routers' requests in flight on all replicas.
func (r *linked) others() (requests int64) {
	for _, a := range r.ledger.All() {
		for _, s := range a.Others() {
			requests += s.Requests
		}
	}
	return requests
}

// checkFleet makes every router hear every other, with its requests in flight.
func checkFleet(t *testing.T, all []*linked) {
	t.Helper()
	for i, r := range all {
		within(t, fmt.Sprintf("router %d hears all others", i), func() bool { return r.peers() == len(all)-1 })
	}
	var open []*load.Charge
	for _, r := range all {
		r.fleet.mu.Lock()
		r.fleet.prefixes = 0
		r.fleet.mu.Unlock()
	}
	for i, r := range all {
		open = append(open, r.charge(i%4))
		r.link.outbox.Send(decision.Prefix{Statement: decision.Observed, Model: "m", Holder: replica(0), Lasts: time.Second})
	}
	for i, r := range all {
		within(t, fmt.Sprintf("router %d counts all requests", i), func() bool { return r.others() == int64(len(all)-1) })
		within(t, fmt.Sprintf("router %d hears the prefixes", i), func() bool {
			r.fleet.mu.Lock()
			defer r.fleet.mu.Unlock()
			return r.fleet.prefixes == len(all)-1
		})
	}
	for _, c := range open {
		c.Release()
	}
	for i, r := range all {
		within(t, fmt.Sprintf("router %d counts nothing", i), func() bool { return r.others() == 0 })
	}
}

// TestEmbeddedServersFindEachOther: each has the first's address alone, and the
// state stays when that one is gone.
func TestEmbeddedServersFindEachOther(t *testing.T) {
	all := cluster(t, 4, nil)
	checkFleet(t, all)
	all[0].charge(1)
	within(t, "the charge is heard", func() bool { return all[3].others() == 1 })
	all[0].stop() // it takes leave: its requests in flight are released
	within(t, "its charge is gone", func() bool { return all[3].others() == 0 })
	if notes := all[3].link.Notes(); len(notes) != 0 {
		t.Errorf("a router that took leave is missed: %q", notes)
	}
	checkFleet(t, all[1:])
}

// TestABurstGoesTogether: under many changes too, messages are sent a rest apart,
// and the last one has the final state.
func TestABurstGoesTogether(t *testing.T) {
	all := cluster(t, 2, nil)
	checkFleet(t, all)
	teller, before, began := all[0], all[0].link.State().Stats.Sent, time.Now()
	var open []*load.Charge
	for i := range 2000 {
		open = append(open, teller.charge(i%4))
	}
	within(t, "all is heard", func() bool { return all[1].others() == 2000 })
	for _, c := range open {
		c.Release()
	}
	within(t, "the end is heard", func() bool { return all[1].others() == 0 })
	sent, took := teller.link.State().Stats.Sent-before, time.Since(began)
	most := uint64(took/rest) + 2 + 2*uint64(took/peers.AliveEvery+1) // the first, and the messages that the clock triggers
	if sent > most {
		t.Errorf("%d messages in %v, want at most %d", sent, took, most)
	}
}

// metrics are r's, series of one name added up.
func (r *linked) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	c, reg := new(Collector), prometheus.NewPedanticRegistry()
	c.Of(r.link)
	reg.MustRegister(c)
	all := must.Get(reg.Gather())(t)
	sums := map[string]float64{}
	for _, f := range all {
		for _, m := range f.Metric {
			sums[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sums
}

// TestARouterThatCannotKeepUp drops messages that it does not read, which delays no
// other router, and requests full messages once it reads again.
func TestARouterThatCannotKeepUp(t *testing.T) {
	all := cluster(t, 3, nil)
	checkFleet(t, all)
	teller, slow := all[0], all[1]
	slow.link.mu.Lock() // it reads no more
	flood := func() {
		for range inbox {
			_ = teller.link.conn.Publish(teller.link.subject, nil)
		}
		_ = teller.link.conn.Flush()
	}
	dropped := func() int { n, _ := slow.link.sub.Dropped(); return n }
	within(t, "it drops messages", func() bool { flood(); return dropped() > 0 })
	charge := teller.charge(1)
	within(t, "the others hear it", func() bool { return all[2].others() == 1 })
	before := dropped()
	within(t, "it has dropped what they heard", func() bool { flood(); return dropped() > before+inbox })
	if slow.others() != 0 {
		t.Error("it heard what it could not read")
	}
	slow.link.mu.Unlock()
	within(t, "it hears of the request", func() bool { return slow.others() == 1 })
	within(t, "it knows both others", func() bool { return len(slow.link.State().Peers) == 2 })
	n, state, gaps := slow.metrics(t), slow.link.State(), uint64(0)
	for _, p := range state.Peers {
		gaps += p.Gaps
	}
	if gaps == 0 && state.Stats.Expired == 0 { // a router that fell silent meanwhile begins anew
		t.Error("no gap is counted")
	}
	for _, name := range []string{"warmroute_peer_silent_seconds", "warmroute_peer_in_flight_requests", "warmroute_peers_messages_total", "warmroute_peers_bytes_total"} {
		if n[name] <= 0 {
			t.Errorf("%s: %v", name, n[name])
		}
	}
	if n["warmroute_peers_connected"] != 1 {
		t.Errorf("%v peers are connected", n["warmroute_peers_connected"])
	}
	charge.Release()
	checkFleet(t, all)
}

func TestFleetsAreApart(t *testing.T) {
	ns := external(t)
	a := start(t, Config{ID: "a", Fleet: "one", URL: ns}, nil)
	b := start(t, Config{ID: "b", Fleet: "two", URL: ns}, nil)
	c := start(t, Config{ID: "c", Fleet: "one", URL: ns}, nil)
	checkFleet(t, []*linked{a, c})
	if b.peers() != 0 {
		t.Errorf("a router of another fleet: %+v", b.link.State().Peers)
	}
}

// external is a NATS server in this process that routers reach over TCP.
func external(t *testing.T) string {
	t.Helper()
	ns := must.Get(server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true}))(t)
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(30 * time.Second) {
		t.Fatal("no NATS server")
	}
	return ns.ClientURL()
}

// TestTwoOfOneNameAreReported, once, and neither counts the other's requests.
func TestTwoOfOneNameAreReported(t *testing.T) {
	ns := external(t)
	log := new(text)
	a := start(t, Config{ID: "twin", Fleet: "one", URL: ns}, slog.New(slog.NewTextHandler(log, nil)))
	start(t, Config{ID: "twin", Fleet: "one", URL: ns}, nil)
	within(t, "it is logged", func() bool { return strings.Contains(log.String(), "another router is named") })
	within(t, "more arrives", func() bool { return a.link.State().Stats.Refused > 3 })
	if n := strings.Count(log.String(), "another router is named"); n != 1 || a.peers() != 0 {
		t.Errorf("logged %d times, %d peers", n, a.peers())
	}
}

// TestASecretKeepsStrangersOut: routers with another token do not cluster.
func TestASecretKeepsStrangersOut(t *testing.T) {
	dir := t.TempDir()
	all := cluster(t, 2, func(c *Config) { c.TokenFile = write(t, dir, "token", "secret") })
	checkFleet(t, all)
	c := DefaultConfig()
	c.ID, c.Listen, c.Routes, c.TokenFile = "stranger", "127.0.0.1:0", []string{all[0].link.Addr()}, write(t, dir, "other", "guess")
	stranger := start(t, c, nil)
	within(t, "it is refused", func() bool { return all[0].link.server.routes() == 1 && stranger.link.server.routes() == 0 })
	all[0].charge(0)
	within(t, "its friend hears it", func() bool { return all[1].others() == 1 })
	if stranger.peers() != 0 || stranger.others() != 0 {
		t.Error("a stranger hears the fleet")
	}
}
