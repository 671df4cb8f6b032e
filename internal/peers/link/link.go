package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"warmroute/index"
	"warmroute/internal/peers"
)

const (
	// inbox bounds the messages of other routers that wait to be read. Further ones
	// are dropped, which shows as a gap.
	inbox = 4096
	// lookEvery is how often a Link reads the clock.
	lookEvery = 100 * time.Millisecond
	// rest is the least time between two messages: the first is sent at once, and
	// changes within this time share the next. The cost of messages depends on their
	// number, not their size: without a rest a busy router would spend a third more on
	// each request.
	rest = 5 * time.Millisecond
	// lostAfter is how long NATS may be out of reach before routers count as split.
	lostAfter = time.Second
	// pingEvery is how often NATS must answer a ping: after three the connection ends. A machine that is
	// lost ends none.
	pingEvery = 5 * time.Second
)

// Link is a peers.Machine on NATS. Open it, pass its Outbox to the decider,
// and Run it.
type Link struct {
	c       Config
	id      string
	log     *slog.Logger
	server  natsServer // nil: NATS runs elsewhere
	found   *discovery // of the servers of other routers
	conn    *nats.Conn
	sub     *nats.Subscription
	in      chan *nats.Msg
	subject string
	outbox  *peers.Outbox
	logged  map[string]bool // errors that were logged once; belongs to Run

	mu      sync.Mutex // guards the fields below
	machine *peers.Machine
	lost    time.Time // NATS has been out of reach since; zero = it is not
	unsent  uint64
}

// natsServer is a NATS server in this process.
type natsServer interface {
	addr() string               // for the servers of other routers
	routes() int                // connections to these
	dial(routes []string) error // instead of the former routes
	stop()                      // it waits for the end
}

// Open starts or finds NATS. o has what the router shares; its name, its epoch and Adopted are the Link's.
func Open(c Config, o peers.Options, log *slog.Logger) (*Link, error) {
	return open(c, newDiscovery(c), o, log)
}

func open(c Config, found *discovery, o peers.Options, log *slog.Logger) (*Link, error) {
	l := &Link{
		c: c, id: c.name(), log: log, found: found, in: make(chan *nats.Msg, inbox), outbox: o.Outbox,
		subject: "warmroute." + c.Fleet + ".routers", logged: map[string]bool{},
	}
	options, err := l.options()
	if err != nil {
		return nil, err
	}
	if c.Listen != "" {
		routes, _ := l.found.routes(context.Background(), time.Now())
		ns, local, err := embed(c, l.id, routes)
		if err != nil {
			return nil, err
		}
		l.server, options = ns, append(options, local...)
	}
	if l.conn, err = nats.Connect(c.URL, options...); err != nil {
		l.stop()
		return nil, fmt.Errorf("peers: connect to NATS: %w", err)
	}
	if l.sub, err = l.conn.ChanSubscribe(l.subject, l.in); err != nil {
		l.stop()
		return nil, fmt.Errorf("peers: subscribe: %w", err)
	}
	if !l.conn.IsConnected() {
		l.lost = time.Now()
	}
	o.ID, o.Epoch, o.Adopted = l.id, rand.Uint64(), l.adopted
	l.machine = peers.New(o)
	return l, nil
}

func (l *Link) options() ([]nats.Option, error) {
	lost := func(at time.Time) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lost = at
	}
	logged := "" // the error of this connection that was logged last; a server that refuses does so at each attempt
	o := []nats.Option{
		nats.Name("warmroute " + l.id), nats.NoEcho(), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond), nats.RetryOnFailedConnect(true),
		nats.PingInterval(pingEvery),
		nats.IgnoreAuthErrorAbort(), // a server that refuses may know this router later
		nats.ReconnectBufSize(-1),   // a message that cannot be sent is not sent later: the next full message has everything
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			lost(time.Now())
			if err != nil {
				l.log.Warn("peers: NATS is not reachable, routers do not receive each other's load", "error", err)
			}
		}),
		nats.ConnectHandler(func(*nats.Conn) { lost(time.Time{}) }),
		nats.ReconnectHandler(func(*nats.Conn) {
			lost(time.Time{})
			logged = ""
			l.log.Info("peers: NATS is reachable again")
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrSlowConsumer) || err.Error() == logged { // State counts the messages that a slow consumer drops
				return
			}
			logged = err.Error()
			l.log.Warn("peers: NATS", "error", err)
		}),
	}
	if l.c.Listen != "" {
		return o, nil
	}
	if l.c.Creds != "" {
		o = append(o, nats.UserCredentials(l.c.Creds))
	}
	token, err := l.c.token()
	if err != nil {
		return nil, err
	}
	if token != "" {
		o = append(o, nats.TokenHandler(func() string { // at each attempt, so that a renewed one is used
			if renewed, err := l.c.token(); err == nil {
				token = renewed
			}
			return token
		}))
	}
	t, err := certificates(l.c.TLS)
	if err != nil {
		return nil, err
	}
	if t != nil {
		o = append(o, nats.Secure(t))
	}
	return o, nil
}

// Run sends and receives until ctx ends, then sends the last message.
func (l *Link) Run(ctx context.Context) error {
	if l == nil {
		return nil
	}
	defer l.stop()
	if l.server != nil {
		var found sync.WaitGroup
		defer found.Wait() // before the server stops
		found.Go(func() { l.found.run(ctx, l.server.dial, l.log) })
	}
	clock := time.Tick(lookEvery)
	l.outbox.Notify()
	ready, rested := l.outbox.Ready(), time.NewTimer(rest)
	defer rested.Stop()
	for {
		select {
		case <-ctx.Done():
			l.publish(l.machine.Leave)
			_ = l.conn.FlushTimeout(time.Second) // without this message, the others drop the router after Silence
			return nil
		case <-ready:
			l.publish(l.machine.Write)
			ready = nil
			rested.Reset(rest)
		case <-rested.C:
			select { // no other goroutine has to wake this one for it
			case <-l.outbox.Ready():
				l.publish(l.machine.Write)
				rested.Reset(rest)
			default:
				ready = l.outbox.Ready()
			}
		case m := <-l.in:
			l.read(m.Data)
		case now := <-clock:
			l.mu.Lock()
			due := l.machine.Tick(now)
			l.mu.Unlock()
			if due {
				l.publish(l.machine.Write)
			}
		}
	}
}

// publish sends the message that write returns, if it is not nil.
func (l *Link) publish(write func(time.Time) []byte) {
	l.mu.Lock()
	b := write(index.Now())
	l.mu.Unlock()
	if b == nil {
		return
	}
	if err := l.conn.Publish(l.subject, b); err != nil {
		l.mu.Lock()
		l.unsent++
		l.mu.Unlock()
	}
}

// adopted logs settings that another router has changed.
func (l *Link) adopted(a peers.Adoption) {
	l.log.Info("policy adopted from another router", "from", a.From, "by", a.By, "version", a.Version, "changes", strings.Join(a.Fields, "; "))
}

func (l *Link) read(b []byte) {
	l.mu.Lock()
	err := l.machine.Read(index.Now(), b)
	l.mu.Unlock()
	if err != nil && !errors.Is(err, peers.ErrGarbage) && len(l.logged) < peers.MaxPeers && !l.logged[err.Error()] {
		l.logged[err.Error()] = true // once for each error
		l.log.Error("peers: a message is not used", "error", err)
	}
}

// stop closes the connection and the embedded server, and waits for both.
func (l *Link) stop() {
	if l.conn != nil {
		l.conn.Close()
	}
	if l.server != nil {
		l.server.stop()
	}
}

// ID returns this router's name among its peers.
func (l *Link) ID() string { return l.id }

// Addr returns the address of the embedded server for other routers, "" if NATS runs
// elsewhere.
func (l *Link) Addr() string {
	if l.server == nil {
		return ""
	}
	return l.server.addr()
}

// State is a Link's state for an operator.
type State struct {
	peers.State
	Embedded        string `json:"embedded,omitempty"` // the embedded server's address
	Connected       bool   `json:"connected"`          // NATS is within reach
	Unsent          uint64 `json:"unsent_messages"`
	Dropped         uint64 `json:"dropped_messages"` // of other routers, not read in time
	DroppedPrefixes uint64 `json:"untold_prefixes"`
}

// State describes the link and everything received over it.
func (l *Link) State() State {
	dropped, _ := l.sub.Dropped() // fails once the connection is closed
	l.mu.Lock()
	defer l.mu.Unlock()
	return State{
		State: l.machine.State(index.Now()), Embedded: l.Addr(), Connected: l.conn.IsConnected(),
		Unsent: l.unsent, Dropped: uint64(max(0, dropped)), DroppedPrefixes: l.outbox.Dropped(),
	}
}

// Notes lists problems that do not prevent serving: a router stopped sending
// without a farewell message, or NATS is out of reach.
func (l *Link) Notes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var notes []string
	if !l.lost.IsZero() && time.Since(l.lost) > lostAfter {
		notes = append(notes, "peers: NATS is not reachable: this router does not receive the load of the others")
	}
	for _, id := range l.machine.Missing() {
		notes = append(notes, fmt.Sprintf("peers: router %q sends no messages: it is down, or the network between the routers is", id))
	}
	return notes
}
