package decision

import (
	"math"
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

// publisher is who reports one replica's blocks; mu is held over a batch.
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
	var err error
	if r.index, err = index.New(index.Options{Now: clock}); err != nil {
		t.Fatal(err)
	}
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

// stored has a replica publish a prompt's blocks, as vLLM does when the step
// that completes the prompt ends.
func (r *rig) stored(addr string, p chained) {
	r.t.Helper()
	e := index.Event{Kind: index.Stored, Scope: index.Scope{Model: "m", Scheme: index.SchemeTokens, BlockSize: blockSize}}
	for _, b := range p.blocks {
		e.Hashes = append(e.Hashes, uint64(b))
		e.Content = append(e.Content, prefixhash.Content(b))
	}
	from := r.publishers[addr]
	from.mu.Lock()
	defer from.mu.Unlock()
	if from.life == 0 {
		return
	}
	b := &index.Batch{Holder: index.Holder{Replica: addr}, Incarnation: from.life, Events: []index.Event{e}}
	if _, err := r.index.Apply(b); err != nil {
		r.t.Fatal(err)
	}
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

func first(d Decision) string {
	addr, _, _ := strings.Cut(d.Destination, ",")
	return addr
}

func (r *rig) account(addr string) *load.Account { return r.ledger.Of(index.Holder{Replica: addr}) }

// candidate is the state of one candidate in a record.
func candidate(t *testing.T, rec *Record, addr string) policy.Candidate {
	t.Helper()
	for _, c := range rec.Candidates {
		if c.Replica == addr {
			return c.State
		}
	}
	t.Fatalf("%s is no candidate", addr)
	return policy.Candidate{}
}

func replicas(n int) (out []*fleet.Replica) {
	for i := range n {
		out = append(out, replica(i+1))
	}
	return out
}

func TestColdThenObserved(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(4)...)
	p := prompt(1, 0, 100)
	d, rec := r.ask(p)
	if d.Reason != ReasonCold || rec.Predicted != 0 {
		t.Fatalf("the first: %+v", d)
	}
	home := first(d)
	r.wait(60 * time.Millisecond)
	r.stored(home, p)
	d.Reservation.Release()
	d, rec = r.ask(p)
	if first(d) != home || d.Reason != ReasonWarm || rec.Predicted != 100*blockSize {
		t.Errorf("the second went to %s with %d cached tokens (%s), the prompt is on %s", first(d), rec.Predicted, d.Reason, home)
	}
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

// TestSpeculationLastsUntilEventsTell: from the decision on, the prefix counts at
// its replica; the events replace that, and silence ends it.
func TestSpeculationLastsUntilEventsTell(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(2)...)
	p := prompt(1, 0, 100)
	d, _ := r.ask(p)
	home := first(d)
	_, rec := r.ask(p)
	if c := candidate(t, rec, home); c.Matched != 100*blockSize || c.Reported != 0 {
		t.Errorf("just routed: %+v", c)
	}
	r.stored(home, p)
	_, rec = r.ask(p)
	if c := candidate(t, rec, home); c.Matched != 100*blockSize || c.Reported != 100*blockSize {
		t.Errorf("reported: %+v", c)
	}
	lost := prompt(2, 0, 100)
	d, _ = r.ask(lost)
	r.wait(time.Minute)
	r.index.Begin(index.Holder{Replica: "10.0.0.9:8000"}) // somebody else's batch does not matter
	if _, rec = r.ask(lost); candidate(t, rec, first(d)).Matched != 0 {
		t.Errorf("a minute later nothing was stored, but it still counts")
	}
}

// TestSpeculationIsWithdrawnWhenTheRequestFails: by its status, by the end of its
// response, or because the event that reports its first token had not come by
// then. Blocks that a replica has reported stay, however the response ended.
func TestSpeculationIsWithdrawnWhenTheRequestFails(t *testing.T) {
	unseen := func(*Reservation) {}
	whole := func(l *Reservation) { l.Ended(true) }
	broken := func(l *Reservation) { l.Ended(false) }
	for i, tt := range []struct {
		name   string
		status int
		ended  func(*Reservation)
		heard  bool
		stays  bool
	}{
		{"whole", 200, whole, false, true},
		{"broken off", 200, broken, false, false},
		{"an end that is not seen", 200, unseen, false, false},
		{"nothing is seen", 0, unseen, false, false},
		{"refused", 400, whole, false, false},
		{"an error", 503, whole, false, false},
		{"stored, then broken off", 200, broken, true, true},
		{"stored, nothing is seen", 0, unseen, true, true},
	} {
		r := newRig(t, policy.Config{}, replicas(2)...)
		p := prompt(i, 0, 100)
		d, _ := r.ask(p)
		if tt.heard {
			r.stored(first(d), p)
		}
		d.Reservation.Answered(tt.status)
		tt.ended(d.Reservation)
		d.Reservation.Release()
		_, rec := r.ask(p)
		if got := candidate(t, rec, first(d)).Matched > 0; got != tt.stays {
			t.Errorf("%s: counts as cached: %v, want %v", tt.name, got, tt.stays)
		}
	}
}

func TestServedElsewhereMovesTheCharge(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(3)...)
	p := prompt(1, 0, 100)
	d, _ := r.ask(p)
	list := strings.Split(d.Destination, ",")
	r.decider.Served(&d, list[1])
	from, to := r.account(list[0]), r.account(list[1])
	if from.InFlight() != 0 || from.Pending() != 0 || to.InFlight() != 1 || to.Live() != int64(p.Tokens(0)) {
		t.Errorf("in flight %d on the first, %d where it was served", from.InFlight(), to.InFlight())
	}
	_, rec := r.ask(p)
	if candidate(t, rec, list[0]).Matched != 0 || candidate(t, rec, list[1]).Matched == 0 {
		t.Error("the prefix is expected where it was first sent")
	}
	d.Reservation.Release()
	if to.InFlight() > 1 || from.InFlight() > 1 {
		t.Error("the charge stays")
	}
	d, _ = r.ask(prompt(2, 0, 10))
	r.decider.Served(&d, "10.9.9.9:8000") // not one of ours
	d.Reservation.Release()
	for addr, l := range r.ledger.All() {
		if l.Failures() > 1 {
			t.Errorf("%v is blamed for what Envoy does without hints", addr)
		}
	}
}

// TestFirstTokenByEvent: the event that stores the prompt's last block ends the
// wait, not an earlier block, not the response headers.
func TestFirstTokenByEvent(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(1)...)
	p := prompt(1, 0, 1000)
	d, _ := r.ask(p)
	account := r.account(first(d))
	if account.Awaiting() != 1 || account.Pending() < 0.6 {
		t.Fatalf("awaiting %d, %.3f s", account.Awaiting(), account.Pending())
	}
	r.wait(300 * time.Millisecond)
	half := p
	half.blocks = p.blocks[:512] // a chunk of 8192 tokens
	r.stored(first(d), half)
	d.Reservation.Answered(200)
	if account.Awaiting() != 1 {
		t.Error("a first chunk or the response headers count as the first token")
	}
	r.wait(300 * time.Millisecond)
	r.stored(first(d), p)
	if account.Awaiting() != 0 || account.Pending() != 0 || account.InFlight() != 1 {
		t.Errorf("after the last block: awaiting %d, pending %g, in flight %d", account.Awaiting(), account.Pending(), account.InFlight())
	}
	if s := account.Speed(); s < 0.8 || s > 1.05 { // 0.6 s where 0.69 were modelled
		t.Errorf("learned speed %g", s)
	}
	d.Reservation.Release()
	if account.InFlight() != 0 || account.Live() != 0 || account.Sentinels() != 0 {
		t.Errorf("something stays: in flight %d, live %d, sentinels %d", account.InFlight(), account.Live(), account.Sentinels())
	}
}

// TestFirstTokenWithoutEvent: a request that stores nothing new counts as
// started after its expected time, or when a later one has started.
func TestFirstTokenWithoutEvent(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(1)...)
	p := prompt(1, 0, 100)
	r.stored("10.0.0.1:8000", p)
	hit, _ := r.ask(p)
	r.wait(time.Millisecond)
	if _, rec := r.ask(p); candidate(t, rec, first(hit)).Awaiting > 1 {
		t.Errorf("one token to compute still awaited after 1 ms: %+v", rec.Candidates)
	}
	long, _ := r.ask(prompt(2, 0, 2000))
	behind, _ := r.ask(p) // waits behind the long one
	r.wait(10 * time.Millisecond)
	if _, rec := r.ask(p); candidate(t, rec, first(hit)).Awaiting < 2 {
		t.Errorf("the hit behind a long prefill counts as started: %+v", rec.Candidates)
	}
	later := prompt(3, 0, 10)
	if d, _ := r.ask(later); d.Reservation == nil {
		t.Fatal("no hint")
	}
	r.stored("10.0.0.1:8000", later)
	r.ask(p)
	if behind.Reservation.own.Awaiting() {
		t.Error("a later request has its first token, this one does not")
	}
	if !long.Reservation.own.Awaiting() {
		t.Error("what an event will tell of was guessed")
	}
	r.wait(time.Hour) // the event was lost
	r.ask(p)
	if long.Reservation.own.Awaiting() {
		t.Error("a first token is awaited for ever")
	}
}

// TestLateNewsOfFirstTokens: if events come a second late, requests that found the
// engine idle show it, and the work that the engine must have done in that second
// is taken off, in order, but no more.
func TestLateNewsOfFirstTokens(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(1)...)
	const prefill, late = 350 * time.Millisecond, time.Second // of 9000 tokens, and the news
	account := r.account("10.0.0.1:8000")
	next := 0
	send := func() (Decision, chained) {
		next++
		p := prompt(next, 0, 562)
		d, _ := r.ask(p)
		return d, p
	}
	if send(); account.Lag() != 0 {
		t.Fatalf("%.2f s late before there was any news", account.Lag())
	}
	for range 40 {
		r.wait(5 * time.Second)
		a, pa := send()
		b, pb := send()
		r.wait(prefill + late)
		r.stored("10.0.0.1:8000", pa)
		r.wait(prefill) // which distinguishes a slow replica from late reports
		r.stored("10.0.0.1:8000", pb)
		a.Reservation.Release()
		b.Reservation.Release()
	}
	if l := account.Lag(); l < 0.8 || l > 1.1 {
		t.Fatalf("the news are %.2f s late, learned %.2f s", late.Seconds(), l)
	}
	r.wait(5 * time.Second)
	a, pa := send()
	r.wait(100 * time.Millisecond)
	b, _ := send()
	left := func(awaiting int, least, most float64) {
		t.Helper()
		w := new(Work)
		r.decider.Decide(&Ask{Model: "m", Prompts: prompt(999, 0, 1), Dry: true}, w)
		if c := w.Record.Candidates[0].State; c.Awaiting != awaiting || c.Pending < least || c.Pending > most {
			t.Errorf("%d awaiting, %.3f s ahead; want %d, %.2f to %.2f s", c.Awaiting, c.Pending, awaiting, least, most)
		}
	}
	left(2, 0.5, 0.8) // 0.25 s of the first, all of the second
	r.wait(400 * time.Millisecond)
	left(1, 0.1, 0.5) // the first must have come, though it was not reported
	r.wait(400 * time.Millisecond)
	left(0, 0, 0)
	r.stored("10.0.0.1:8000", pa)
	r.wait(2 * late)
	left(1, 0.3, 0.5) // news of the second are overdue: it waits still
	a.Reservation.Release()
	b.Reservation.Release()
}

// TestASidecarTellsOfNoFirstTokens: its reports have the cached blocks, but nobody
// waits for them as a sign that a prefill is over.
func TestASidecarTellsOfNoFirstTokens(t *testing.T) {
	rep := replica(1)
	rep.Events, rep.Sidecar = nil, true
	r := newRig(t, policy.Config{}, rep)
	d, rec := r.ask(prompt(1, 0, 100))
	if d.Reason != ReasonCold || rec.Blocks != 100 {
		t.Fatalf("not decided by its blocks: %+v", d)
	}
	r.wait(70 * time.Millisecond) // 58 ms of prefill
	r.ask(prompt(2, 0, 100))
	if d.Reservation.own.Awaiting() {
		t.Error("its first token is still awaited after the expected time")
	}
}

// TestBurstOfOnePrompt is 512 identical prompts at once on 8 replicas.
func TestBurstOfOnePrompt(t *testing.T) {
	for _, blocks := range []int{20, 768, 4000} {
		r := newRig(t, policy.Config{}, replicas(8)...)
		p := prompt(1, 0, blocks)
		count, misses := map[string]int{}, 0
		for n := 1; n <= 512; n++ {
			d, rec := r.ask(p)
			count[first(d)]++
			if rec.Predicted == 0 {
				misses++
			}
			most := 0
			for _, k := range count {
				most = max(most, k)
			}
			if mean := float64(n) / 8; n >= 64 && float64(most) > 1.3*mean {
				t.Fatalf("%d blocks: after %d the busiest has %d, %.2f times the mean", blocks, n, most, float64(most)/mean)
			}
		}
		if hits, attainable := 512-misses, 512-8; float64(hits) < 0.9*float64(attainable) {
			t.Errorf("%d blocks: %d hits of %d attainable", blocks, hits, attainable)
		}
	}
}

// TestAReplicaThatFailsAtOnceGetsNothing: it never has anything in flight, and
// must not look idle for that.
func TestAReplicaThatFailsAtOnceGetsNothing(t *testing.T) {
	for _, status := range []int{503, 0} { // told by Envoy, or only seen to end too soon
		r := newRig(t, policy.Config{}, replicas(4)...)
		hole, fell := "10.0.0.2:8000", 0
		for i := range 400 {
			d, _ := r.ask(prompt(i, i, 100))
			r.wait(time.Millisecond)
			if first(d) == hole {
				fell++
				d.Reservation.Answered(status)
				d.Reservation.Release()
			}
		}
		if fell > 8 { // three to notice, and one try after each penalty
			t.Errorf("status %d: the broken replica got %d of 400 requests", status, fell)
		}
		r.wait(time.Minute)
		back := 0
		for i := range 40 {
			d, _ := r.ask(prompt(1000+i, i, 100))
			if first(d) == hole {
				back++
				r.wait(100 * time.Millisecond)
				d.Reservation.Answered(200)
				d.Reservation.Release()
			}
		}
		if back == 0 {
			t.Errorf("status %d: the replica never gets another chance", status)
		}
	}
}

// TestAQuickAnswerFromTheCacheIsNoFailure: a wholly cached prompt with an answer
// of one token stores nothing and may end within a millisecond.
func TestAQuickAnswerFromTheCacheIsNoFailure(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(2)...)
	p := prompt(1, 0, 100)
	warm := "10.0.0.2:8000"
	r.stored(warm, p)
	for i := range 6 {
		d, _ := r.ask(p)
		if first(d) != warm {
			t.Fatalf("request %d went to %s", i, first(d))
		}
		r.wait(time.Millisecond)
		d.Reservation.Release()
	}
}

// TestAQuickAnswerWhereNothingIsReportedIsNoFailure: the text chain knows the
// first 16 KiB of a conversation that is cached as a whole, or nothing of it.
func TestAQuickAnswerWhereNothingIsReportedIsNoFailure(t *testing.T) {
	reps := replicas(2)
	for i := range reps {
		reps[i].Events = nil
	}
	r := newRig(t, policy.Config{}, reps...)
	text := chained{blocks: []int{1, 2, 3, 4, 5, 6, 7, 8}}.keys()
	ask := func() Decision {
		return r.decider.Decide(&Ask{Model: "m", Text: text, TextTokens: 25600}, new(Work))
	}
	home := ""
	for i := range 10 {
		d := ask()
		if home == "" {
			home = first(d)
		}
		if first(d) != home {
			t.Fatalf("request %d went to %s, the first to %s", i, first(d), home)
		}
		r.wait(20 * time.Millisecond) // one engine step, which is seen to end without its status
		d.Reservation.Release()
	}
}

func TestStrangersTrafficCountsAsLoad(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(2)...)
	reps := replicas(2)
	page := func(running, waiting float64) {
		r.wait(time.Second)
		for i := range reps {
			c := *reps[i]
			c.Load = []fleet.Load{{At: r.now}}
			if i == 0 {
				c.Load[0].Running, c.Load[0].Waiting = running, waiting
			}
			reps[i] = &c
		}
		r.fleet.Set(reps...)
	}
	page(4, 12)
	d, rec := r.ask(prompt(1, 0, 100))
	if c := candidate(t, rec, "10.0.0.1:8000"); first(d) != "10.0.0.2:8000" || c.Foreign < 0.3 {
		t.Errorf("12 requests of others wait there: went to %s, %+v", first(d), c)
	}
	// Our own burst is not somebody else's, even when it is over by now.
	page(0, 0)
	var ours []Decision
	for i := range 20 {
		d, _ := r.ask(prompt(10+i, i, 10))
		ours = append(ours, d)
	}
	for _, d := range ours {
		d.Reservation.Answered(200)
		d.Reservation.Release()
	}
	page(8, 2)
	if _, rec := r.ask(prompt(99, 0, 10)); candidate(t, rec, "10.0.0.1:8000").Foreign != 0 {
		t.Errorf("our own requests count as others': %+v", rec.Candidates)
	}
}

func TestTheHistogramCalibratesWhereThereAreNoEvents(t *testing.T) {
	rep := replica(1)
	rep.Events = nil
	r := newRig(t, policy.Config{}, rep)
	sum, count := 0.0, 0.0
	for range 100 {
		for range 5 {
			w := new(Work)
			text := []prefixhash.Key{prefixhash.Key(count + 1)}
			d := r.decider.Decide(&Ask{Model: "m", Text: text, TextTokens: 1000}, w)
			r.wait(200 * time.Millisecond)
			sum, count = sum+3*w.Record.Candidates[0].State.Pending+3*0.0355, count+1 // three times slower than modelled
			d.Reservation.Answered(200)
			d.Reservation.Release()
		}
		c := *rep
		c.Load = []fleet.Load{{At: r.now, TTFTSum: sum, TTFTCount: count}}
		r.fleet.Set(&c)
	}
	learned := r.account(rep.Addr).Speed()
	if learned < 2.2 || learned > 3.5 {
		t.Errorf("learned speed %g, the replica is three times slower than modelled", learned)
	}
	stranger := replica(2) // an unknown one: it counts like the idle ones
	stranger.Events = nil
	r.fleet.Set(rep, stranger)
	w := new(Work)
	r.decider.Decide(&Ask{Model: "m", Text: []prefixhash.Key{1}, TextTokens: 1000, Dry: true}, w)
	if got := candidate(t, &w.Record, stranger.Addr).Speed; math.Abs(got-learned) > 1e-9 {
		t.Errorf("a new replica counts with speed %g, want %g", got, learned)
	}
}

func TestLoadedAdaptersAreNearer(t *testing.T) {
	lora := prefixhash.LoRA{Name: "sql", Set: true}
	var reps []*fleet.Replica
	for i := range 3 {
		c := *replica(i + 1)
		c.Models = []fleet.Model{{ID: "sql", Base: "m", LoRA: lora}}
		c.Load = []fleet.Load{{MaxLoRAs: 2, At: time.Unix(1, 0)}}
		reps = append(reps, &c)
	}
	reps[0].Load[0].LoRAs = []string{"de", "fr"}
	reps[1].Load[0].LoRAs = []string{"de"}
	reps[2].Load[0].LoRAs = []string{"de", "sql"}
	r := newRig(t, policy.Config{}, reps...)
	w := new(Work)
	d := r.decider.Decide(&Ask{Model: "sql", Prompts: prompt(1, 0, 50)}, w)
	if d.Destination != "10.0.0.3:8000,10.0.0.2:8000,10.0.0.1:8000" {
		t.Errorf("order %s: want loaded, a free slot, full", d.Destination)
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
	if d := busy(newRig(t, policy.Config{}, replicas(2)...)); d.Destination == "" {
		t.Errorf("shed by default: %+v", d)
	}
	r := newRig(t, policy.Config{Overrides: policy.Overrides{MaxTTFT: &limit}}, replicas(2)...)
	if d := busy(r); d.Reason != ReasonSaturated || d.Reservation != nil {
		t.Errorf("every replica is seconds behind: %+v", d)
	}
	w := new(Work)
	if d := r.decider.Decide(&Ask{Model: "m", Prompts: prompt(98, 0, 10), Priority: 1}, w); d.Destination == "" {
		t.Errorf("priority: %+v", d)
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

func TestTheTextChainLearnsWhereRequestsWereServed(t *testing.T) {
	for _, kind := range []policy.Name{policy.NameTTFT, policy.NameBalance} {
		reps := replicas(4)
		for i := range reps {
			reps[i].Events = nil
		}
		r := newRig(t, policy.Config{Overrides: policy.Overrides{RoutePolicy: &kind}}, reps...)
		ask := func(text []prefixhash.Key) Decision {
			return r.decider.Decide(&Ask{Model: "m", Text: text, TextTokens: len(text) * TextBlockTokens}, new(Work))
		}
		text := chained{blocks: []int{1, 2, 3, 4, 5, 6, 7, 8}}.keys()
		d := ask(text)
		if d.Reason != ReasonLearnedCold {
			t.Fatalf("%s: %+v", kind, d)
		}
		home := first(d)
		d.Reservation.Answered(200)
		d.Reservation.Release()
		d = ask(text)
		if d.Reason != ReasonLearned || first(d) != home {
			t.Errorf("%s: the second time %+v, want %s", kind, d, home)
		}
		list := strings.Split(d.Destination, ",")
		r.decider.Served(&d, list[1])
		d.Reservation.Answered(200)
		d.Reservation.Release()
		if d = ask(text); first(d) != list[1] {
			t.Errorf("%s: after it was served on %s: %+v", kind, list[1], d)
		}
		d.Reservation.Release()
		r.decider.Forget(list[1])
		if d = ask(text); d.Reason != ReasonLearnedCold {
			t.Errorf("%s: after that left: %+v", kind, d)
		}
	}
}

// TestDepartureInvalidatesOnce: a departure drops the texts learned of the replica
// so far; a departure of nothing, as when a second source reports it too, drops no
// text learned since.
func TestDepartureInvalidatesOnce(t *testing.T) {
	all := replicas(2)
	for i := range all {
		all[i].Events = nil
	}
	r := newRig(t, policy.Config{}, all...)
	text := chained{blocks: []int{1, 2, 3, 4, 5, 6, 7, 8}}.keys()
	ask := func() Decision {
		t.Helper()
		return r.decider.Decide(&Ask{Model: "m", Text: text, TextTokens: len(text) * TextBlockTokens}, new(Work))
	}
	d := ask()
	home := first(d)
	old := r.account(home)
	r.decider.Forget(home)
	d.Reservation.Release()
	if old.InFlight() != 0 {
		t.Error("the charge on the account that was dropped stays")
	}
	if r.account(home) == old {
		t.Error("the replica's load outlived it")
	}
	if again := ask(); again.Reason != ReasonLearnedCold {
		t.Errorf("after the departure: %+v, want nothing learned", again)
	} else {
		again.Reservation.Release()
	}

	// The replica is back and has served the text; no request is charged to it.
	r.decider.Forget(home)
	r.wait(time.Second)
	mv, _ := r.decider.Find("m", "")
	r.decider.learned.Observe(mv.tree, text, r.index.ID(index.Holder{Replica: home}), r.decider.now(), time.Minute)
	r.wait(time.Second)
	r.ledger.Drop(home)
	r.decider.Forget(home) // a second word of the first departure
	if d = ask(); d.Reason != ReasonLearned || first(d) != home {
		t.Errorf("%+v, want %s: a departure of nothing has forgotten what was learned since", d, home)
	}
	d.Reservation.Release()
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
					list := strings.Split(d.Destination, ",")
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
