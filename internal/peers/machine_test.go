package peers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/peers/peerspb"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

func TestAChargeIsToldAtOnce(t *testing.T) {
	w := newMesh(t, 3)
	w.settle()
	c := w.nodes[0].charge(w.now, 1)
	w.settle() // no time goes by
	a := w.nodes[2].ledger.Of(replica(1))
	a2 := func() policy.Load {
		w.nodes[2].ledger.Lock()
		defer w.nodes[2].ledger.Unlock()
		return a.State(w.now.UnixNano())
	}
	if s := a2(); s.InFlight != 1 || s.Awaiting != 1 || s.Pending != 0.1 || s.Live != 1000 {
		t.Fatalf("charged: %+v", s)
	}
	c.FirstToken()
	w.settle()
	if s := a2(); s.InFlight != 1 || s.Awaiting != 0 || s.Pending != 0 {
		t.Errorf("first token: %+v", s)
	}
	c.Release()
	w.settle()
	if s := a2(); s.InFlight != 0 || s.Live != 0 || s.Failing {
		t.Errorf("released: %+v", s)
	}
	for range 3 { // three failures in a row
		c := w.nodes[0].charge(w.now, 1)
		c.Release()
		c.Account().Logged(true)
	}
	w.settle()
	if s := a2(); !s.Failing {
		t.Errorf("a replica that failed three times on another router: %+v", s)
	}
	w.pass(2 * time.Second)
	if s := a2(); s.Failing {
		t.Errorf("two seconds later: %+v", s)
	}
}

// TestWhatComesUpMeanwhileGoesTogether: a burst between two messages is one.
func TestWhatComesUpMeanwhileGoesTogether(t *testing.T) {
	w := newMesh(t, 2)
	w.settle()
	n := w.nodes[0]
	before := n.m.stats.Sent
	for i := range 1000 {
		n.charge(w.now, i%4)
		n.outbox.Send(decision.Prefix{Statement: decision.Observed, Model: "m", Holder: replica(i % 4), Keys: []prefixhash.Key{1, 2, 3}, Lasts: time.Second})
	}
	w.settle()
	if got := n.m.stats.Sent - before; got != 1 {
		t.Errorf("%d messages", got)
	}
	if got := w.nodes[1].fleet.prefixes; len(got) != 1000 || !slices.Equal(got[999].Keys, []prefixhash.Key{1, 2, 3}) || got[999].Holder != replica(3) {
		t.Errorf("%d prefixes, the last %+v", len(got), got[len(got)-1])
	}
	w.agree("after the burst")
}

// TestLostMessagesAreMended: after any loss, the state is right after the next
// message that arrives, and nothing stays at the end.
func TestLostMessagesAreMended(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := newMesh(t, 2+int(seed%4))
		w.settle()
		w.lose = func() bool { return rng.IntN(3) == 0 }
		for range 300 {
			n := w.nodes[rng.IntN(len(w.nodes))]
			switch k := len(n.charges); {
			case k > 0 && rng.IntN(2) == 0:
				i := rng.IntN(k)
				if rng.IntN(2) == 0 {
					n.charges[i].FirstToken()
				}
				n.charges[i].Release()
				n.charges = slices.Delete(n.charges, i, i+1)
			default:
				n.charge(w.now, rng.IntN(4))
			}
			w.settle()
			if rng.IntN(10) == 0 {
				w.pass(200 * time.Millisecond)
			}
		}
		w.lose = func() bool { return false }
		w.pass(time.Second) // a message or two from each node, and the requested full messages
		w.agree(fmt.Sprintf("seed %d, a second later", seed))
		for _, n := range w.nodes {
			for _, c := range n.charges {
				c.Release()
			}
		}
		w.settle()
		for i, n := range w.nodes {
			for h, a := range n.ledger.All() {
				if o := a.Others(); len(o) != 0 || a.InFlight() != 0 {
					t.Errorf("seed %d: router %d keeps %v and %d of its own on %s", seed, i, o, a.InFlight(), h.Replica)
				}
			}
		}
	}
}

func TestASilentRouterIsGoneWithItsCharges(t *testing.T) {
	w := newMesh(t, 3)
	w.nodes[0].charge(w.now, 0)
	w.settle()
	w.agree("at first")
	w.nodes[0].cut = true
	w.pass(Silence - 100*time.Millisecond)
	if n := w.nodes[1].others(); n != 1 {
		t.Fatalf("%d requests of a router that is silent for less than %v", n, Silence)
	}
	w.pass(200 * time.Millisecond)
	if n := w.nodes[1].others(); n != 0 || len(w.nodes[1].m.peers) != 1 {
		t.Errorf("%d requests of a router that is gone, %d peers", n, len(w.nodes[1].m.peers))
	}
	if got := w.nodes[1].fleet.gone; !slices.Equal(got, []string{"r0"}) {
		t.Errorf("the fleet is told that %v are gone", got)
	}
	w.nodes[1].charge(w.now, 2)
	w.pass(time.Second)
	w.nodes[0].cut = false
	w.pass(time.Second)
	w.agree("healed")
}

// TestARestartIsANewEpoch: the first message of the new process removes the previous
// one's requests in flight, and the new process has the others' state at once.
func TestARestartIsANewEpoch(t *testing.T) {
	w := newMesh(t, 3)
	w.nodes[0].charge(w.now, 0)
	w.nodes[1].charge(w.now, 1)
	w.settle()
	w.nodes[0] = w.node("r0", 99)
	w.settle()
	w.agree("after the restart")
	if n := w.nodes[0].others(); n != 1 {
		t.Errorf("the new process knows of %d requests", n)
	}
}

func TestLeavingReleasesAtOnce(t *testing.T) {
	w := newMesh(t, 2)
	w.nodes[0].charge(w.now, 0)
	w.settle()
	w.send(w.nodes[0], w.nodes[0].m.Leave(w.now))
	if n := w.nodes[1].others(); n != 0 || len(w.nodes[1].m.peers) != 0 {
		t.Errorf("%d requests, %d peers", n, len(w.nodes[1].m.peers))
	}
}

// TestAGapAsksForAFullMessage.
func TestAGapAsksForAFullMessage(t *testing.T) {
	w := newMesh(t, 2)
	w.settle()
	a, b := w.nodes[0], w.nodes[1]
	w.lose = func() bool { return true }
	a.charge(w.now, 0)
	w.settle()
	w.lose = func() bool { return false }
	w.now = w.now.Add(100 * time.Millisecond)
	a.charge(w.now, 1)
	w.settle()
	p := b.m.peers["r0"]
	if p.stats.Gaps != 1 || p.stats.Asked != 1 || !p.complete {
		t.Errorf("%+v, whole %v", p.stats, p.complete)
	}
	if got := b.fleet.gone; !slices.Equal(got, []string{"r0"}) {
		t.Errorf("what was lost may be an end: the fleet is told of %v", got)
	}
	w.agree("after the gap")
}

// TestNoVersionWinsForEver: settings whose version is too far ahead are refused, by
// name; the highest accepted version gives way to the next change; and accepted
// settings are reported with their origin.
func TestNoVersionWinsForEver(t *testing.T) {
	w := newMesh(t, 1)
	n := w.nodes[0]
	var adopted []Adoption
	n.m.o.Adopted = func(a Adoption) { adopted = append(adopted, a) }
	seq := uint64(0)
	send := func(version uint64, kind string) error {
		seq++
		b := must.Get(proto.Marshal(&peerspb.Message{Protocol: Protocol, From: "rogue", Epoch: 1, Seq: seq, Full: true,
			Policy: &peerspb.Policy{Version: version, By: "stranger", Config: []byte(`{"route_policy":"` + kind + `"}`)}}))(t)
		return n.m.Read(w.now, b)
	}
	limit := uint64(w.now.Add(Ahead).UnixMilli())
	for _, version := range []uint64{limit + 1, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		if err := send(version, "filter-then-score"); !says(err, `settings by router "stranger", sent by router "rogue", are ignored`) {
			t.Errorf("version %d: %v", version, err)
		}
	}
	if n.book.Of("m").Policy != policy.NameTTFT || len(adopted) != 0 || n.m.stats.Refused != 4 {
		t.Errorf("refused settings count: %v, %+v, %+v", n.book.Of("m").Policy, adopted, n.m.stats)
	}
	if err := send(limit, "filter-then-score"); err != nil || n.book.Of("m").Policy != policy.NameBalance {
		t.Errorf("the highest version: %v, %v", err, n.book.Of("m").Policy)
	}
	if len(adopted) != 1 || adopted[0].From != "rogue" || adopted[0].By != "stranger" || adopted[0].Version != limit || len(adopted[0].Fields) == 0 {
		t.Errorf("adopted %+v", adopted)
	}
	c, err := n.book.Replace(policy.Config{})
	if err != nil || len(c.Fields) == 0 {
		t.Fatal(c, err)
	}
	n.outbox.PolicyChanged(policy.Config{})
	n.m.Write(w.now)
	if err := send(limit, "filter-then-score"); err != nil || n.book.Of("m").Policy != policy.NameTTFT || n.m.policy.number != limit+1 {
		t.Errorf("a change after it: %v, %v, %d", err, n.book.Of("m").Policy, n.m.policy.number)
	}
}

// TestHeldRequestsAreEachRoutersOwn: the policy of another router leaves the settings of held
// requests as they are.
func TestHeldRequestsAreEachRoutersOwn(t *testing.T) {
	w := newMesh(t, 2)
	w.settle()
	from, to := w.nodes[0], w.nodes[1]
	must.Get(to.book.Replace(policy.Config{Sessions: policy.Sessions{Share: 0.1}}))(t)
	must.Get(from.book.Patch("", []byte(`{"route_policy":"filter-then-score"}`)))(t)
	c, _ := from.book.Config()
	from.outbox.PolicyChanged(c)
	w.settle()
	if got := to.book.Of("m"); got.Policy != policy.NameBalance || got.Sessions.Share != 0.1 {
		t.Errorf("%v, %+v", got.Policy, got.Sessions)
	}
}

// TestTheLastWriterOfThePolicyWins.
func TestTheLastWriterOfThePolicyWins(t *testing.T) {
	const began = 1_700_000_000_000 // the mesh's clock in milliseconds
	w := newMesh(t, 3)
	w.settle()
	set := func(n *node, kind string) {
		t.Helper()
		must.Get(n.book.Patch("", []byte(`{"route_policy":"`+kind+`"}`)))(t)
		c, _ := n.book.Config()
		n.outbox.PolicyChanged(c)
	}
	set(w.nodes[0], "filter-then-score")
	w.settle()
	for i, n := range w.nodes {
		if got := n.book.Of("m").Policy; got != policy.NameBalance || n.m.policy.number != began || n.m.policy.by != "r0" {
			t.Errorf("router %d: %s, %+v", i, got, n.m.policy)
		}
	}
	set(w.nodes[1], "disabled") // at once, by two that have not received each other's message
	set(w.nodes[2], "ttft")
	one, two := w.nodes[1].m.Write(w.now), w.nodes[2].m.Write(w.now)
	w.send(w.nodes[1], one)
	w.send(w.nodes[2], two)
	w.settle()
	for i, n := range w.nodes {
		if got := n.book.Of("m").Policy; got != policy.NameTTFT || n.m.policy.number != began+1 || n.m.policy.by != "r2" {
			t.Errorf("router %d: %s, %+v", i, got, n.m.policy)
		}
	}
	set(w.nodes[1], "disabled") // one after the other, the second before it could send
	set(w.nodes[2], "filter-then-score")
	w.settle()
	for i, n := range w.nodes {
		if got := n.book.Of("m").Policy; got != policy.NameBalance || n.m.policy.number != began+3 {
			t.Errorf("router %d, after both: %s, %+v", i, got, n.m.policy)
		}
	}
	w.nodes[0] = w.node("r0", 99) // and it outlives a restart
	w.settle()
	if n := w.nodes[0]; n.m.policy.number != began+3 {
		t.Errorf("the new process has %+v", n.m.policy)
	}
}

func TestPressureIsOfTheFleet(t *testing.T) {
	w := newMesh(t, 3)
	w.nodes[0].fleet.pressure.Raise("m", w.now) // before any other node has received it
	w.settle()
	for range 5 {
		w.nodes[0].fleet.pressure.Raise("m", w.now)
	}
	w.nodes[1].fleet.pressure.Raise("m", w.now)
	w.pass(FullEvery + 100*time.Millisecond)
	w.pass(FullEvery + 100*time.Millisecond) // received state is not sent on
	for i, want := range []uint64{7, 6, 6} {
		if got := w.nodes[i].fleet.pressure.Of("m", w.now).Total; got != want {
			t.Errorf("router %d: %d occurrences, want %d", i, got, want)
		}
	}
	w.nodes[2].fleet.pressure.Reset("m")
	w.nodes[2].outbox.PressureReset("m")
	w.settle()
	if got := w.nodes[0].fleet.pressure.Of("m", w.now).Recent; got != 0 {
		t.Errorf("after the reset on another router: %d", got)
	}
}

// says reports whether an error has these words.
func says(err error, words string) bool { return err != nil && strings.Contains(err.Error(), words) }

func TestStrangersAreRefused(t *testing.T) {
	w := newMesh(t, 1)
	m := w.nodes[0].m
	text := func(in *peerspb.Message) []byte {
		return must.Get(proto.Marshal(in))(t)
	}
	if err := m.Read(w.now, text(&peerspb.Message{Protocol: 2, From: "x", Seq: 1})); !says(err, `router "x" uses version 2 of the protocol, this one version 1`) {
		t.Errorf("another version: %v", err)
	}
	if err := m.Read(w.now, text(&peerspb.Message{Protocol: 1, From: "r0", Epoch: 7, Seq: 1})); !says(err, `another router is named "r0" too`) {
		t.Errorf("another process with this name: %v", err)
	}
	for _, b := range [][]byte{nil, []byte("garbage"), text(&peerspb.Message{Protocol: 1, Seq: 1}), text(&peerspb.Message{Protocol: 1, From: "x"})} {
		if err := m.Read(w.now, b); err == nil {
			t.Errorf("%q was read", b)
		}
	}
	// A replica this router does not know makes no account.
	if err := m.Read(w.now, text(&peerspb.Message{Protocol: 1, From: "x", Seq: 1, Accounts: []*peerspb.Account{{Replica: "10.9.9.9:1", Requests: 5}}})); err != nil {
		t.Error(err)
	}
	if w.nodes[0].ledger.Find(index.Holder{Replica: "10.9.9.9:1"}) != nil || w.nodes[0].others() != 0 {
		t.Error("a stranger's replica has an account")
	}
	for i := range 2 * MaxPeers {
		_ = m.Read(w.now, text(&peerspb.Message{Protocol: 1, From: fmt.Sprint("x", i), Seq: 1}))
	}
	if len(m.peers) > MaxPeers {
		t.Errorf("%d peers", len(m.peers))
	}
}

// TestPeersAreReckonedWith: a peer's prefill per second counts, for as long as its
// messages take, and no longer once it has stopped.
func TestPeersAreReckonedWith(t *testing.T) {
	w := newMesh(t, 2)
	a, b := w.nodes[0], w.nodes[1]
	w.pass(FullEvery)
	for range 100 { // ten requests of 0.1 s a second
		a.charge(w.now, 0)
		w.pass(100 * time.Millisecond)
	}
	if got := b.ledger.Unreported(); got != 0 {
		t.Errorf("%g s are on their way, and messages take no time", got)
	}
	b.m.peers["r0"].rtt = 40 * time.Millisecond
	b.m.Tick(w.now)
	if got := b.ledger.Unreported(); got < 0.9*0.02 || got > 1.1*0.02 {
		t.Errorf("%g s are on their way, of a router that sends 1 s a second and is 20 ms away", got)
	}
	b.m.peers["r0"].rtt = 2 * time.Second
	b.m.Tick(w.now)
	if got := b.ledger.Unreported(); got < 0.9*0.1 || got > 1.1*0.1 {
		t.Errorf("%g s are on their way, of a router that is a second away: 100 ms are reckoned with", got)
	}
	if got := a.ledger.Unreported(); got != 0 {
		t.Errorf("%g s are on their way from a router that sends nothing", got)
	}
	w.now = w.now.Add(10 * time.Second)
	b.m.Tick(w.now)
	if got := b.ledger.Unreported(); got != 0 {
		t.Errorf("%g s are on their way from a router that is gone", got)
	}
}

// FuzzRead: no input breaks anything, and once the sender is silent nothing of
// it is left.
func FuzzRead(f *testing.F) {
	for _, in := range []*peerspb.Message{
		{Protocol: 1, From: "x", Epoch: 1, Seq: 1, Full: true, Accounts: []*peerspb.Account{{Replica: replica(0).Replica, Requests: 1 << 63, PendingNs: 1 << 63, FailingNs: 1}}},
		{Protocol: 1, From: "x", Seq: 2, Prefixes: []*peerspb.Prefix{{Kind: 1, Model: "m", Replica: replica(1).Replica, Keys: []uint64{1, 2}}}},
		{Protocol: 1, From: "x", Seq: 3, Full: true, Policy: &peerspb.Policy{Version: 9, By: "x", Config: []byte(`{"route_policy":"ttft"}`)}, Pressure: []*peerspb.Pressure{{Model: "m", Raised: 3}}},
		{Protocol: 1, From: "x", Seq: 1, Leaving: true, Ask: []string{"r0"}, Echoes: []*peerspb.Echo{{To: "r0", Stamp: 1, HeldNs: 2}}},
		{Protocol: 3, From: "y"},
	} {
		b := must.Get(proto.Marshal(in))(f)
		f.Add(b, b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		w := newMesh(t, 1)
		n := w.nodes[0]
		for _, text := range [][]byte{a, b, a} {
			_ = n.m.Read(w.now, text)
			w.now = w.now.Add(time.Millisecond)
			_ = n.m.Write(w.now)
		}
		n.m.State(w.now)
		w.now = w.now.Add(Silence)
		n.m.Tick(w.now)
		if n.others() != 0 || len(n.m.peers) != 0 {
			t.Errorf("%d requests of routers that are gone", n.others())
		}
	})
}
