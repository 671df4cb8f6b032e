package peers

import (
	"time"

	"google.golang.org/protobuf/proto"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/load"
	"warmroute/internal/peers/peerspb"
)

const (
	// Protocol is the version of the contract. Messages of other versions are
	// refused.
	Protocol = 1
	// FullEvery is the time between two full messages.
	FullEvery = 2 * time.Second
	// AliveEvery is the longest time between two messages of a router.
	AliveEvery = 500 * time.Millisecond
	// Silence is how long a router may be silent before it is gone: with the time
	// until the next Tick, its charges are dropped 3 s after its end.
	Silence = 2800 * time.Millisecond
	// missingFor is how long a router that fell silent is listed as missing.
	missingFor = 10 * time.Minute
	// requestEvery is the least time between two questions to one router.
	requestEvery = 100 * time.Millisecond
	// Ahead is how far the version of another router's settings may be ahead of this
	// router's clock.
	Ahead = 24 * time.Hour
)

// Fleet receives the blocks that other routers expect to be cached.
// decision.Decider is one.
type Fleet interface {
	Receive(p decision.Prefix)
	Gone(router string) // the router is gone, or some of its messages were lost
	Pressure() *decision.Pressure
	Raise(model string) // an occurrence of pressure on another router
}

var _ Fleet = (*decision.Decider)(nil)

// Options are a Machine's surroundings.
type Options struct {
	ID     string // of this router, unique in its fleet
	Epoch  uint64 // of this process, random
	Ledger *load.Ledger
	Fleet  Fleet
	Book   *policy.Book
	Outbox *Outbox
	// Adopted is called with the changes of settings that another router has made;
	// nil: it is not.
	Adopted func(a Adoption)
}

// Adoption is a change of the settings that came from another router.
type Adoption struct {
	From    string // the router that sent it
	By      string // the router where it was made
	Version uint64
	policy.Change
}

// Machine is one router's side of the protocol.
type Machine struct {
	o       Options
	peers   map[string]*peer
	missing map[string]time.Time // routers that fell silent without a farewell message, and when
	stats   Stats

	seq          uint64
	sent         time.Time // the last message
	sentFull     time.Time
	wantFull     bool
	fullRequests []string        // routers that must send a full message
	policy       version         // the settings in force
	out          peerspb.Message // with its accounts and prefixes, which are used again
	buf          []byte          // the last message
	outgoing     outgoing
	accounts     []*load.Account
	// raised is the part of each model's pressure that came from peers.
	raised map[string]uint64
}

// version is one edition of the settings shared by all routers. Its number is a
// hybrid logical clock: the time of the change in Unix milliseconds, or one more
// than the number before. A number far ahead of the time is refused, so that every
// later change on any router wins.
type version struct {
	number uint64 // 0 = no change at run time
	by     string
	config []byte
}

// after reports whether v replaces w.
func (v version) after(w version) bool {
	return v.number > w.number || v.number == w.number && v.by > w.by
}

// New returns a machine that has sent and received nothing.
func New(o Options) *Machine {
	o.Ledger.OnChange(o.Outbox.Notify)
	return &Machine{o: o, peers: map[string]*peer{}, missing: map[string]time.Time{}, wantFull: true, raised: map[string]uint64{}}
}

// Tick removes peers that have been silent for too long, and reports whether a
// message is due without a change.
func (m *Machine) Tick(now time.Time) (due bool) {
	for id, p := range m.peers {
		if now.Sub(p.lastMessage) >= Silence {
			m.forget(id, p, now)
			m.stats.Expired++
			if len(m.missing) < MaxPeers {
				m.missing[id] = now
			}
		}
	}
	for id, since := range m.missing {
		if now.Sub(since) >= missingFor {
			delete(m.missing, id)
		}
	}
	m.o.Ledger.Settle()
	m.estimateUnreported(now)
	return now.Sub(m.sent) >= AliveEvery || now.Sub(m.sentFull) >= FullEvery
}

// Write returns the next message, nil if there is nothing to send. It is valid until
// the next call.
func (m *Machine) Write(now time.Time) []byte {
	waiting, full, changed := m.o.Outbox.take(m.outgoing)
	m.outgoing = waiting
	if changed != nil {
		m.policy = version{m.policy.number, "", nil} // messages received meanwhile came before it
		m.adopt(version{max(m.policy.number+1, uint64(now.UnixMilli())), m.o.ID, changed}, m.o.ID)
	}
	full = full || m.wantFull || now.Sub(m.sentFull) >= FullEvery
	out := &m.out
	out.Accounts, out.Prefixes = out.Accounts[:0], out.Prefixes[:0]
	out.Pressure, out.Echoes, out.Policy, out.Stamp = nil, nil, nil, 0
	if full {
		m.o.Ledger.Settle()
	}
	m.accounts = m.o.Ledger.Changed(m.accounts, func(h index.Holder, a *load.Account) {
		if !full {
			m.account(h, a.Share(now))
		}
	})
	for i := range waiting.prefixes {
		putPrefix(next(&out.Prefixes), &waiting.prefixes[i])
	}
	if !full && len(out.Accounts)+len(out.Prefixes)+len(m.fullRequests) == 0 && now.Sub(m.sent) < AliveEvery {
		return nil
	}
	if full {
		m.fill(now)
	}
	return m.encode(now, full)
}

// Leave returns the last message: this router is gone.
func (m *Machine) Leave(now time.Time) []byte {
	m.out = peerspb.Message{Leaving: true}
	return m.encode(now, false)
}

// fill puts everything into a full message.
func (m *Machine) fill(now time.Time) {
	for h, a := range m.o.Ledger.All() {
		if s := a.Share(now); s != (load.Share{Sent: s.Sent, Work: s.Work}) {
			m.account(h, s)
		}
	}
	pressure := m.o.Fleet.Pressure()
	for _, s := range pressure.All(now) {
		m.out.Pressure = append(m.out.Pressure, &peerspb.Pressure{
			Model: s.Model, Raised: s.Total - min(s.Total, m.raised[s.Model]), Resets: m.o.Outbox.resetsOf(s.Model),
		})
	}
	if m.policy.number > 0 {
		m.out.Policy = &peerspb.Policy{Version: m.policy.number, By: m.policy.by, Config: m.policy.config}
	}
	m.out.Stamp = uint64(now.UnixNano())
	for id, p := range m.peers {
		if p.stamp != 0 {
			m.out.Echoes = append(m.out.Echoes, &peerspb.Echo{To: id, Stamp: p.stamp, HeldNs: uint64(now.Sub(p.stamped))})
		}
	}
}

func (m *Machine) account(h index.Holder, s load.Share) {
	x := next(&m.out.Accounts)
	x.Replica, x.Rank = h.Replica, uint32(h.Rank)
	x.Requests, x.Awaiting, x.PendingNs, x.Live = uint64(s.Requests), uint64(s.Awaiting), uint64(s.Pending), uint64(s.Live)
	x.Sent, x.WorkNs, x.FailingNs = uint64(s.Sent), uint64(s.Work), uint64(s.Failing)
}

// next lengthens a list by an element. It reuses a former element's memory, if any.
func next[T any](list *[]*T) *T {
	n := len(*list)
	if n < cap(*list) {
		*list = (*list)[:n+1]
	} else {
		*list = append(*list, nil)
	}
	if (*list)[n] == nil {
		(*list)[n] = new(T)
	}
	return (*list)[n]
}

func (m *Machine) encode(now time.Time, full bool) []byte {
	m.seq++
	out := &m.out
	out.Protocol, out.From, out.Epoch, out.Seq, out.Full = Protocol, m.o.ID, m.o.Epoch, m.seq, full
	out.Ask, m.fullRequests = m.fullRequests, nil
	b, err := proto.MarshalOptions{}.MarshalAppend(m.buf[:0], out)
	if err != nil { // names that are not UTF-8: discovery checks them
		m.stats.Unwritten++
		return nil
	}
	m.sent, m.buf = now, b
	if full {
		m.sentFull, m.wantFull = now, false
	}
	m.stats.Sent++
	m.stats.SentBytes += uint64(len(b))
	return b
}
