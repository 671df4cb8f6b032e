package decision

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/decisiontest"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// rig is a decider over a real index, on a clock of its own.
type rig struct {
	t       testing.TB
	mu      sync.Mutex
	now     time.Time
	fleet   *decisiontest.Fleet
	index   *index.Index
	ledger  *load.Ledger
	book    *policy.Book
	decider *Decider
	// One publisher at a time per replica, as feed has it: see Ledger.Applied.
	publishers map[string]*publisher
}

// publisher reports one replica's blocks; mu is held over a batch.
type publisher struct {
	mu   sync.Mutex
	life uint64 // incarnation, 0 = gone
}

func newRig(t testing.TB, c policy.Config, replicas ...*fleet.Replica) *rig {
	t.Helper()
	r := &rig{t: t, now: time.Unix(1_700_000_000, 0), fleet: decisiontest.NewFleet(replicas...), book: newBook(t, c), publishers: map[string]*publisher{}}
	clock := func() time.Time {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.now
	}
	r.index = index.New(index.Options{Now: clock})
	t.Cleanup(func() { r.index.Close() })
	for _, rep := range replicas {
		r.publishers[rep.Addr] = &publisher{life: r.index.Begin(index.Holder{Replica: rep.Addr})}
	}
	r.ledger = load.NewLedger(clock)
	r.decider = New(r.fleet, r.index, r.ledger, r.book, Options{Now: clock})
	return r
}

func (r *rig) wait(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

// chained are prompts by block numbers.
type chained struct {
	blocks []int
	extra  int // tokens behind the last full block
}

func (p chained) keys() (keys []prefixhash.Key) {
	parent := prefixhash.TokenRoot("m", prefixhash.LoRA{})
	for _, b := range p.blocks {
		parent = prefixhash.Link(parent, prefixhash.Content(b))
		keys = append(keys, parent)
	}
	return keys
}

func (p chained) Len() int       { return 1 }
func (p chained) Tokens(int) int { return len(p.blocks)*blockSize + p.extra }
func (p chained) AppendKeys(dst []prefixhash.Key, _ *index.Scope, _ int) []prefixhash.Key {
	return append(dst, p.keys()...)
}
func (p chained) Length(int) int { return p.Tokens(0) }
func (p chained) AppendChain(dst []prefixhash.Key, _ index.Keying, _ int) []prefixhash.Key {
	return append(dst, p.keys()...)
}
func (p chained) Sentinel(*index.Scope, int) (uint64, int) {
	if len(p.blocks) == 0 {
		return 0, 0
	}
	return uint64(p.blocks[len(p.blocks)-1]), len(p.blocks)
}

// prompt is n blocks of which the first are shared with all prompts of that
// family, and one more token.
func prompt(family, own, n int) chained {
	p := chained{extra: 1}
	for i := range n {
		p.blocks = append(p.blocks, family*1_000_000+own*1000+i+1)
	}
	return p
}

func (r *rig) ask(p chained) (Decision, *Record) {
	w := new(Work)
	d := r.decider.Decide(&Ask{Model: "m", Prompts: p}, w)
	return d, &w.Record
}

// Of two readings of a request the reading with more cached tokens is placed,
// whichever comes first; of equal readings, the first.
func TestOtherPrompts(t *testing.T) {
	r := newRig(t, policy.Config{}, decisiontest.Replica(1), decisiontest.Replica(2))
	today, yesterday, never := prompt(1, 0, 20), prompt(2, 0, 24), prompt(3, 0, 22)
	r.stored("10.0.0.1:8000", prompt(1, 0, 5))
	r.stored("10.0.0.2:8000", yesterday)
	for _, c := range []struct {
		first, other, want chained
		matched            int
	}{
		{today, yesterday, yesterday, 24 * blockSize}, {yesterday, today, yesterday, 24 * blockSize},
		{today, never, today, 5 * blockSize}, {never, never, never, 0}, {never, prompt(4, 0, 30), never, 0},
	} {
		w := new(Work)
		a := &Ask{Model: "m", Prompts: c.first, Other: c.other, Dry: true}
		d := r.decider.Decide(a, w)
		if w.Record.Tokens != c.want.Tokens(0) || w.Record.Predicted != c.matched || w.Record.Blocks != len(c.want.blocks) && c.matched > 0 {
			t.Errorf("%+v: %d tokens, %d blocks, %d predicted (%v)", c, w.Record.Tokens, w.Record.Blocks, w.Record.Predicted, d.Reason)
		}
		if a.Prompts.Tokens(0) != c.want.Tokens(0) {
			t.Error("the prompts that were placed are not those that stay")
		}
	}
}

// event stores a prompt's blocks.
func (r *rig) event(p chained) index.Event {
	e := index.Event{Kind: index.Stored, Scope: index.Scope{Model: "m", Scheme: index.SchemeTokens, BlockSize: blockSize}}
	for _, b := range p.blocks {
		e.Hashes = append(e.Hashes, uint64(b))
		e.Content = append(e.Content, prefixhash.Content(b))
	}
	return e
}

// stored has a replica publish a prompt's blocks, as vLLM does when the step
// that completes the prompt ends.
func (r *rig) stored(addr string, p chained) {
	r.t.Helper()
	e := r.event(p)
	from := r.publishers[addr]
	from.mu.Lock()
	defer from.mu.Unlock()
	if from.life == 0 {
		return
	}
	b := &index.Batch{Holder: index.Holder{Replica: addr}, Incarnation: from.life, Events: []index.Event{e}}
	must.Get(r.index.Apply(b))(r.t)
	r.ledger.Applied(b)
}

// leave is a replica's departure as fleet and feed have it: it is offered no
// more, its publisher ends, and only then is it forgotten.
func (r *rig) leave(addr string, remaining ...*fleet.Replica) {
	r.fleet.Set(remaining...)
	from := r.publishers[addr]
	from.mu.Lock()
	defer from.mu.Unlock()
	from.life = 0
	r.index.Remove(addr)
	r.decider.Forget(addr)
}

// join brings a replica that has left back, with an empty cache.
func (r *rig) join(addr string, all ...*fleet.Replica) {
	from := r.publishers[addr]
	from.mu.Lock()
	from.life = r.index.Begin(index.Holder{Replica: addr})
	from.mu.Unlock()
	r.fleet.Set(all...)
}

func first(d Decision) string { return d.First() }

func (r *rig) account(addr string) *load.Account { return r.ledger.Of(index.Holder{Replica: addr}) }

// candidate is the state of one candidate in a record.
func candidate(t *testing.T, rec *Record, addr string) *policy.Candidate {
	t.Helper()
	for i := range rec.Candidates {
		if c := &rec.Candidates[i]; c.Replica == addr {
			return &c.State
		}
	}
	t.Fatalf("%s is no candidate", addr)
	return nil
}

func replicas(n int) (out []*fleet.Replica) { return caches(n, 0) }

// caches returns replicas that tell the size of their caches, in blocks.
func caches(n, blocks int) (out []*fleet.Replica) {
	for i := range n {
		out = append(out, replica(i+1))
		out[i].Blocks = blocks
	}
	return out
}

func TestUnrelatedPromptsSpread(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(4)...)
	count := map[string]int{}
	for i := range 64 {
		d, _ := r.ask(prompt(i, i, 50))
		count[first(d)]++
	}
	for addr, n := range count {
		if n < 14 || n > 18 {
			t.Errorf("%s got %d of 64 unrelated prompts: %v", addr, n, count)
		}
	}
}

func TestSheddingIsOffUnlessConfigured(t *testing.T) {
	limit := 0.69 // of which the first prompt on each replica takes 0.688
	busy := func(r *rig) Decision {
		for i := range 20 {
			r.ask(prompt(i, i, 1000))
		}
		d, _ := r.ask(prompt(99, 0, 10))
		return d
	}
	if d := busy(newRig(t, policy.Config{}, replicas(2)...)); d.Chosen == "" {
		t.Errorf("shed by default: %+v", d)
	}
	r := newRig(t, policy.Config{Overrides: policy.Overrides{MaxTTFT: &limit}}, replicas(2)...)
	if d := busy(r); d.Reason != ReasonSaturated || d.Reservation != nil {
		t.Errorf("every replica is seconds behind: %+v", d)
	}
	w := new(Work)
	if d := r.decider.Decide(&Ask{Model: "m", Prompts: prompt(98, 0, 10), Priority: 1}, w); d.Chosen == "" {
		t.Errorf("priority: %+v", d)
	}
	d := r.decider.Decide(&Ask{Model: "m", Prompts: prompt(97, 0, 10)}, w)
	for _, c := range w.Record.Candidates {
		if d.Reason != ReasonSaturated || c.Score != (policy.Score{}) {
			t.Errorf("%s: a candidate that was not ranked has the score %+v of the decision before", d.Reason, c.Score)
		}
	}
}

func TestFilterThenScoreRaisesPressure(t *testing.T) {
	kind := policy.NameBalance
	r := newRig(t, policy.Config{Overrides: policy.Overrides{RoutePolicy: &kind}}, replicas(3)...)
	p := prompt(1, 0, 100)
	r.stored("10.0.0.2:8000", p)
	d, _ := r.ask(p)
	if first(d) != "10.0.0.2:8000" || d.Reason != ReasonWarm {
		t.Fatalf("a hot match inside the guard: %+v", d)
	}
	if r.decider.Pressure().Of("m", r.now).Raised {
		t.Error("pressure without a disturbance")
	}
	for i := range 6 {
		r.ask(prompt(50+i, i, 10)) // unique prompts
	}
	if r.decider.Pressure().Of("m", r.now).Raised {
		t.Error("unique prompts raise pressure")
	}
	var guarded Decision
	for range 12 {
		if guarded, _ = r.ask(p); first(guarded) != "10.0.0.2:8000" {
			break
		}
	}
	if guarded.Reason != ReasonGuarded || !r.decider.Pressure().Of("m", r.now).Raised {
		t.Errorf("the guard overrode a hot match: %+v, pressure %+v", guarded, r.decider.Pressure().Of("m", r.now))
	}
	// A replica that is not there any more is no disturbance.
	r.decider.Pressure().Reset("m")
	gone := replicas(3)
	gone[1].Ready = false
	r.fleet.Set(gone...)
	r.ask(p)
	if r.decider.Pressure().Of("m", r.now).Raised {
		t.Error("an offline replica's match counts as a disturbance")
	}
}

// TestConcurrentDecisions is 64 goroutines deciding, ending requests and
// publishing events at once, while one replica after the other leaves and returns.
func TestConcurrentDecisions(t *testing.T) {
	all := replicas(8)
	r := newRig(t, policy.Config{}, all...)
	var wg sync.WaitGroup
	deciding, departures := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		defer func() { departures <- n }()
		for ; ; n++ {
			select {
			case <-deciding:
				return
			default:
			}
			at := n % len(all)
			r.leave(all[at].Addr, slices.Concat(all[:at], all[at+1:])...)
			r.wait(time.Millisecond)
			r.join(all[at].Addr, all...)
		}
	}()
	for g := range 64 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			w := new(Work)
			for i := range 50 {
				p := prompt(rng.IntN(6), rng.IntN(3), 5+rng.IntN(60))
				d := r.decider.Decide(&Ask{Model: "m", Prompts: p}, w)
				if d.Reservation == nil {
					t.Error(d.Reason)
					return
				}
				switch i % 4 {
				case 0:
					list := strings.Split(d.Chosen, ",")
					r.decider.Served(&d, list[rng.IntN(len(list))])
				case 1:
					r.stored(first(d), p)
				case 2:
					d.Reservation.FirstToken()
				}
				d.Reservation.Answered([]int{200, 200, 200, 503}[rng.IntN(4)])
				d.Reservation.Release()
				r.wait(time.Millisecond)
			}
		})
	}
	wg.Wait()
	close(deciding)
	if n := <-departures; n == 0 {
		t.Error("no replica left while requests were decided")
	}
	for h, l := range r.ledger.All() {
		if l.InFlight() != 0 || l.Awaiting() != 0 || l.Pending() != 0 || l.Live() != 0 || l.Sentinels() != 0 {
			t.Errorf("%v: in flight %d, awaiting %d, pending %g, live %d, sentinels %d", h, l.InFlight(), l.Awaiting(), l.Pending(), l.Live(), l.Sentinels())
		}
	}
}
