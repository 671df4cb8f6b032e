package peers

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/load"
	"warmroute/internal/peers/peerspb"
	"warmroute/prefixhash"
)

// Bounds of one message.
const (
	MaxMessage = 8 << 20 // bytes; NATS' own default is 1 MiB
	MaxPeers   = 256
	MaxName    = 512 // bytes of a name
	maxCount   = 1 << 40
	maxRest    = 1 << 24 // tokens
)

// peer is another router, by its last message.
type peer struct {
	epoch       uint64
	seq         uint64
	lastMessage time.Time
	complete    bool      // no message was missed since its last full one
	asked       time.Time // for a full message
	shares      map[index.Holder]load.Share
	raised      map[string]uint64 // pressure received so far, by model
	resets      map[string]uint64
	stamp       uint64 // its last stamp, and when it was received
	stamped     time.Time
	rtt         time.Duration // 0 = not known
	pace        pace
	policy      version
	stats       PeerStats
}

// ErrGarbage is a message that cannot be read.
var ErrGarbage = errors.New("peers: the message cannot be read")

// Read reads a message of another router. It returns an error if it ignores the
// message.
func (m *Machine) Read(now time.Time, b []byte) error {
	var in peerspb.Message
	if len(b) > MaxMessage || proto.Unmarshal(b, &in) != nil {
		m.stats.Garbage++
		return ErrGarbage
	}
	if in.Protocol != Protocol {
		m.stats.Refused++
		return fmt.Errorf("peers: router %q uses version %d of the protocol, this one version %d: its messages are ignored", in.From[:min(len(in.From), MaxName)], in.Protocol, Protocol)
	}
	if in.From == "" || len(in.From) > MaxName || in.Seq == 0 {
		m.stats.Garbage++
		return ErrGarbage
	}
	if in.From == m.o.ID {
		if in.Epoch == m.o.Epoch {
			return nil // this router's own message
		}
		m.stats.Refused++
		return fmt.Errorf("peers: another router is named %q too: it is ignored until one of them has another peers.id", in.From)
	}
	m.stats.Read++
	m.stats.ReadBytes += uint64(len(b))
	return m.receive(now, &in, len(b))
}

func (m *Machine) receive(now time.Time, in *peerspb.Message, size int) error {
	if slices.Contains(in.Ask, m.o.ID) {
		m.requestFull()
	}
	p := m.peers[in.From]
	delete(m.missing, in.From)
	if in.Leaving {
		if p != nil {
			m.forget(in.From, p, now)
		}
		return nil
	}
	if p == nil || p.epoch != in.Epoch {
		if p != nil {
			m.forget(in.From, p, now)
		}
		if len(m.peers) >= MaxPeers {
			m.stats.Refused++
			return fmt.Errorf("peers: router %q is ignored: %d routers are the limit", in.From, len(m.peers))
		}
		p = &peer{epoch: in.Epoch, seq: in.Seq - 1, shares: map[index.Holder]load.Share{}, pace: pace{work: map[index.Holder]int64{}}}
		m.peers[in.From] = p
		m.requestFull() // it has received nothing of this router either
	}
	p.lastMessage = now
	p.stats.Read++
	p.stats.Bytes += uint64(size)
	if in.Seq <= p.seq {
		return nil // a repeated message
	}
	if in.Seq != p.seq+1 {
		p.stats.Gaps++
		p.complete = false
		m.o.Fleet.Gone(in.From)
	}
	p.seq = in.Seq
	m.accountsOf(in, p, now)
	m.estimateUnreported(now)
	for _, x := range in.Prefixes {
		if prefix, ok := readPrefix(x); ok {
			prefix.From = in.From
			m.o.Fleet.Receive(prefix)
		}
	}
	if in.Full {
		return m.fullOf(in, p, now)
	}
	if !p.complete && now.Sub(p.asked) >= requestEvery {
		p.asked = now
		p.stats.Asked++
		m.fullRequests = append(m.fullRequests, in.From)
		m.o.Outbox.Notify()
	}
	return nil
}

// accountsOf reads the accounts of p's requests in flight. A full message empties
// accounts that it does not name.
func (m *Machine) accountsOf(in *peerspb.Message, p *peer, now time.Time) {
	var old map[index.Holder]load.Share
	if in.Full {
		old, p.shares = p.shares, make(map[index.Holder]load.Share, len(in.Accounts))
	}
	for _, x := range in.Accounts {
		h := index.Holder{Replica: x.Replica, Rank: int(x.Rank)}
		a := m.o.Ledger.Find(h)
		if a == nil { // a replica this router does not know
			continue
		}
		s := readShare(x)
		p.shares[h] = s
		p.pace.sent(h, s.Work, now)
		delete(old, h)
		a.SetShare(in.From, s, now)
	}
	for h := range old {
		if a := m.o.Ledger.Find(h); a != nil {
			a.SetShare(in.From, load.Share{}, now)
		}
	}
}

// fullOf reads the fields that only full messages have.
func (m *Machine) fullOf(in *peerspb.Message, p *peer, now time.Time) error {
	p.complete = true
	p.stamp, p.stamped = in.Stamp, now
	for _, e := range in.Echoes {
		if took := now.UnixNano() - int64(e.Stamp) - int64(e.HeldNs); e.To == m.o.ID && took >= 0 && took < int64(Silence) {
			p.rtt = time.Duration(took)
		}
	}
	m.pressureOf(in, p)
	x := in.Policy
	if x == nil || len(x.By) > MaxName {
		return nil
	}
	if x.Version > uint64(now.Add(Ahead).UnixMilli()) {
		m.stats.Refused++
		return fmt.Errorf("peers: settings by router %q, sent by router %q, are ignored: their version is more than %v ahead of this router's clock", x.By, in.From, Ahead)
	}
	m.adopt(version{x.Version, x.By, x.Config}, in.From)
	p.policy = version{number: x.Version, by: x.By}
	return nil
}

// pressureOf applies the raises of p since its last full message. Raises before
// its first message count for p alone.
func (m *Machine) pressureOf(in *peerspb.Message, p *peer) {
	pressure, first := m.o.Fleet.Pressure(), p.raised == nil
	if first {
		p.raised, p.resets = map[string]uint64{}, map[string]uint64{}
	}
	for _, x := range in.Pressure {
		if len(x.Model) > MaxName || len(p.raised) >= MaxPeers && p.raised[x.Model] == 0 {
			continue
		}
		if !first && x.Resets > p.resets[x.Model] {
			pressure.Reset(x.Model)
		}
		for n := p.raised[x.Model]; !first && n < x.Raised && x.Raised-n < 1<<16; n++ {
			m.o.Fleet.Raise(x.Model)
			m.raised[x.Model]++
		}
		p.raised[x.Model], p.resets[x.Model] = x.Raised, x.Resets
	}
}

// adopt replaces the settings in force by settings that were changed later on
// another router.
func (m *Machine) adopt(v version, from string) {
	if m.o.Book == nil || !v.after(m.policy) {
		return
	}
	var c policy.Config
	if json.Unmarshal(v.config, &c) != nil {
		m.stats.Garbage++
		return
	}
	mine, _ := m.o.Book.Config()
	c.Sessions = mine.Sessions // each router has its own: they are not sent
	change, err := m.o.Book.Replace(c)
	if err != nil {
		m.stats.Garbage++
		return
	}
	m.policy = v
	m.stats.Policies++
	if from != m.o.ID && m.o.Adopted != nil && len(change.Fields) > 0 {
		m.o.Adopted(Adoption{From: from, By: v.by, Version: v.number, Change: change})
	}
}

// requestFull makes the next message a full one, and due.
func (m *Machine) requestFull() {
	m.wantFull = true
	m.o.Outbox.Notify()
}

// forget removes a peer and its requests in flight.
func (m *Machine) forget(id string, p *peer, now time.Time) {
	for h := range p.shares {
		if a := m.o.Ledger.Find(h); a != nil {
			a.SetShare(id, load.Share{}, now)
		}
	}
	delete(m.peers, id)
	m.o.Fleet.Gone(id)
}

func readShare(x *peerspb.Account) load.Share {
	n := func(v uint64) int64 { return int64(min(v, maxCount)) }
	ns := func(v uint64) int64 { return int64(min(v, uint64(time.Hour))) }
	return load.Share{
		Requests: n(x.Requests), Awaiting: n(x.Awaiting), Pending: ns(x.PendingNs), Live: n(x.Live),
		Sent: n(x.Sent), Work: int64(x.WorkNs &^ (1 << 63)), Failing: ns(x.FailingNs),
	}
}

func putPrefix(x *peerspb.Prefix, p *decision.Prefix) {
	x.Kind, x.Model, x.Tenant = peerspb.Prefix_Kind(p.Statement), p.Model, p.Tenant
	x.Replica, x.Rank, x.LastsNs = p.Holder.Replica, uint32(p.Holder.Rank), uint64(max(0, p.Lasts))
	x.Rest, x.Unit = uint32(max(0, p.Rest)), uint32(max(0, p.Unit))
	x.Tokens, x.PaidNs = uint32(max(0, p.Tokens)), uint64(max(0, p.Paid))
	x.Keys = x.Keys[:0]
	for _, k := range p.Keys {
		x.Keys = append(x.Keys, uint64(k))
	}
}

func readPrefix(x *peerspb.Prefix) (decision.Prefix, bool) {
	p := decision.Prefix{
		Statement: decision.Statement(x.Kind), Model: x.Model, Tenant: x.Tenant,
		Holder: index.Holder{Replica: x.Replica, Rank: int(x.Rank)}, Lasts: time.Duration(min(x.LastsNs, uint64(time.Hour))),
		Rest: int(min(x.Rest, maxRest)), Unit: int(min(x.Unit, maxRest)),
		Tokens: int(min(x.Tokens, maxRest)), Paid: time.Duration(min(x.PaidNs, uint64(time.Hour))),
	}
	if x.Kind <= peerspb.Prefix_UNKNOWN || x.Kind > peerspb.Prefix_KEPT || len(x.Keys) > waitingKeys {
		return p, false
	}
	p.Keys = make([]prefixhash.Key, len(x.Keys))
	for i, k := range x.Keys {
		p.Keys[i] = prefixhash.Key(k)
	}
	return p, true
}
