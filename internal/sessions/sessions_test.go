package sessions_test

import (
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/history"
	"warmroute/internal/decision/policy"
	"warmroute/internal/sessions"
	"warmroute/prefixhash"
)

const (
	unit = 32   // marks of texts have another one
	rate = 1000 // tokens of prefill in a second
	size = 100_000
)

// office is a Table with holders and a clock.
type office struct {
	t     *testing.T
	table *sessions.Table
	set   policy.Sessions
	now   time.Time
	sent  history.History
	at    []*history.Cache // its caches
	fleet uint64
}

func open(t *testing.T, holders int) *office {
	o := &office{t: t, table: sessions.New(), set: policy.Sessions{Share: 0.1}, now: time.Unix(1_700_000_000, 0)}
	for i := range holders {
		c := o.sent.Of(index.Holder{Replica: "r", Rank: i})
		c.SetCapacity(size)
		o.at = append(o.at, c)
	}
	return o
}

func (o *office) pass(seconds float64) { o.now = o.now.Add(time.Duration(seconds * 1e9)) }

// text is a prompt: stretches of tokens, each by a name and a length.
type text []part

type part struct {
	name   int
	tokens int
}

func (x text) tokens() (n int) {
	for _, p := range x {
		n += p.tokens
	}
	return n
}

func (x text) prompt() history.Prompt {
	m := prefixhash.MarksOf(unit)
	var all []prefixhash.Key
	last := prefixhash.Key(1)
	for _, p := range x {
		for i := range p.tokens / unit {
			last = prefixhash.Link(last, prefixhash.Content(p.name<<32+i))
			all = append(all, last)
		}
	}
	return history.Prompt{Keys: m.AppendPicked(nil, all), Marks: m}
}

// request asks for a text at all holders.
func (o *office) request(x text) *sessions.Request {
	r := &sessions.Request{Model: "m", Prompt: x.prompt(), Tokens: x.tokens(), Fleet: o.fleet, MayHold: true}
	for _, c := range o.at {
		r.Sites = append(r.Sites, sessions.Site{Cache: c, Cached: c.Match(r.Prompt, o.now), Size: size, Rate: rate})
	}
	return r
}

// sent is a request in flight.
type sent struct {
	o     *office
	r     *sessions.Request
	w     *sessions.Work
	use   history.Hold
	place int
}

// ask decides on a request. It is sent, or has a ticket.
func (o *office) ask(r *sessions.Request) (*sent, *sessions.Ticket, bool) {
	place, w, held, full := o.table.Admit(&o.set, r, o.now)
	if held != nil {
		return nil, held, full
	}
	return &sent{o, r, w, o.at[place].Use(r.Prompt, r.Answer, o.now), place}, nil, false
}

func (s *sent) end() {
	s.o.at[s.place].End(s.r.Prompt, s.use, true, s.o.now)
	s.w.End(s.o.now)
}

// send sends a text, which must not be held.
func (o *office) send(x text) *sent {
	o.t.Helper()
	s, held, _ := o.ask(o.request(x))
	if held != nil {
		o.t.Fatalf("%v is held: %+v", x, held.Wait(o.now))
	}
	return s
}

// hold asks for a text, which must be held.
func (o *office) hold(x text) (*sessions.Request, *sessions.Ticket) {
	o.t.Helper()
	r := o.request(x)
	s, held, full := o.ask(r)
	if s != nil || full {
		o.t.Fatalf("%v is not held (full %v)", x, full)
	}
	r.Ticket = held
	return r, held
}

func ready(k *sessions.Ticket) bool {
	select {
	case <-k.Ready():
		return true
	default:
		return false
	}
}

func (o *office) wake() int {
	return o.table.Wake(func(string) *policy.Sessions { return &o.set }, o.fleet, o.now)
}

func TestSessionsAreKnownByContent(t *testing.T) {
	o := open(t, 1)
	turn := func(x text) (uint64, int) {
		s := o.send(x)
		s.end()
		o.pass(1)
		return s.w.Session, s.w.Turn
	}
	head := part{1, 15_040}
	a, _ := turn(text{head, {2, 5000}})
	b, n := turn(text{head, {3, 6000}}) // it shares the system's prompt alone
	if b == a || n != 1 {
		t.Fatalf("another session behind the same head is turn %d of session %d, the first is %d", n, b, a)
	}
	if s, n := turn(text{head, {2, 5000}, {4, 3000}}); s != a || n != 2 {
		t.Errorf("the second turn of %d is turn %d of %d", a, n, s)
	}
	if s, n := turn(text{head, {2, 5000}, {4, 2000}, {5, 9000}}); s != a || n != 3 {
		t.Errorf("with another tool's result in the tail, turn 3 of %d is turn %d of %d", a, n, s)
	}
	if s, _ := turn(text{head, {3, 6000}, {6, 2000}}); s != b {
		t.Errorf("the second turn of %d is of %d", b, s)
	}
	if s, n := turn(text{head, {2, 5000}, {4, 2000}, {5, 9000}, {6, 1000}}); s != a || n != 4 {
		t.Errorf("turn 4 of %d is turn %d of %d", a, n, s)
	}
	if s, n := turn(text{head, {2, 2000}, {7, 4000}}); s != a || n != 5 {
		t.Errorf("a compaction, turn 5 of %d, is turn %d of %d", a, n, s)
	}
	if s, n := turn(text{head, {2, 2000}, {7, 4000}, {8, 1000}}); s != a || n != 6 {
		t.Errorf("turn 6 of %d is turn %d of %d", a, n, s)
	}
	if s, _ := turn(text{head, {9, 1000}}); s == a || s == b {
		t.Errorf("a third session behind the head is %d", s)
	}
}

// TestSameHeadAfterAll: a prompt that seemed to rewrite a session's tail is another session, as soon
// as the session goes on where it was.
func TestSameHeadAfterAll(t *testing.T) {
	o := open(t, 1)
	turn := func(x text) uint64 {
		s := o.send(x)
		s.end()
		return s.w.Session
	}
	turn(text{{9, 5000}})
	a, b := turn(text{{1, 15_040}, {2, 9000}}), turn(text{{1, 15_040}, {3, 9000}})
	if a != b {
		t.Fatal("of a head that one session had, another tail is another session")
	}
	if s := turn(text{{1, 15_040}, {2, 9000}, {4, 1000}}); s != a {
		t.Errorf("the session %d goes on as %d", a, s)
	}
	if s := turn(text{{1, 15_040}, {3, 9000}, {5, 1000}}); s == a {
		t.Errorf("both sessions behind the head are %d", s)
	}
}

func TestChildOfASessionAtWork(t *testing.T) {
	o := open(t, 1)
	parent := o.send(text{{1, 20_000}})
	child := o.send(text{{1, 20_000}, {2, 1000}})
	if child.w.Session == parent.w.Session {
		t.Error("a prompt that comes while its session is at work is the session's next")
	}
	child.end()
	parent.end()
}

// named sends a text under a name.
func (o *office) named(name uint64, model string, x text) *sent {
	r := o.request(x)
	r.Session, r.Model = name, model
	s, _, _ := o.ask(r)
	return s
}

// TestNamedSession: a compaction that shares nothing with the prompt before it is the session's next.
func TestNamedSession(t *testing.T) {
	o := open(t, 1)
	first := o.named(7, "m", text{{1, 5000}})
	first.end()
	if second := o.named(7, "m", text{{2, 5000}}); second.w.Session != first.w.Session || second.w.Turn != 2 {
		t.Errorf("another prompt under the same name is turn %d of %d, not of %d", second.w.Turn, second.w.Session, first.w.Session)
	}
	if seen, _ := o.table.See(o.at[0], o.now); seen.Live != 1 {
		t.Errorf("%d sessions are live, of which one was rewritten", seen.Live)
	}
}

// TestNameOfSeveralSessions: clients send one name with the prompts of a session, of its subagents and
// of other models, which all have contexts of their own.
func TestNameOfSeveralSessions(t *testing.T) {
	for name, c := range map[string]struct {
		model string
		open  bool // the session has a request in flight when the other begins
	}{
		"a subagent":                  {"m", false},
		"a subagent at the same time": {"m", true},
		"another model":               {"small", false},
	} {
		o := open(t, 1)
		main, other := text{{1, 20_000}}, text{{2, 10_000}}
		first := o.named(7, "m", main)
		if !c.open {
			first.end()
		}
		beside := o.named(7, c.model, other)
		if c.open {
			first.end()
		}
		if c.model != "m" && beside.w.Session == first.w.Session {
			t.Errorf("%s: its prompt is of the session", name)
		}
		next := o.named(7, "m", append(main, part{3, 2000}))
		if next.w.Session != first.w.Session || next.w.Turn != 2 {
			t.Errorf("%s: the session %d goes on as turn %d of %d", name, first.w.Session, next.w.Turn, next.w.Session)
		}
		beside.end()
		next.end()
		if seen, _ := o.table.See(o.at[0], o.now); seen.Live != 2 || seen.Context != 32_000 {
			t.Errorf("%s: %d sessions with %d tokens are live", name, seen.Live, seen.Context)
		}
		again := o.named(7, c.model, append(other, part{4, 2000}))
		if again.w.Session == first.w.Session {
			t.Errorf("%s: it goes on as turn %d of session %d", name, again.w.Turn, again.w.Session)
		}
	}
}

// TestRunningCostsMore: where requests in flight fill more than half of the cache with a prompt that
// does not fit, it pays for this, too, at most its own tokens. It pays nothing where all fit.
func TestRunningCostsMore(t *testing.T) {
	for _, c := range []struct {
		name              string
		idle, running, is int
		seconds           float64 // of saving until it goes: price / share, less what falls meanwhile
	}{
		{"nothing runs", 96_000, 0, 5024, 10.2 - 0.1},
		{"less than half runs", 51_200, 44_800, 5024, 10.2 - 0.1},
		{"more than half runs", 44_800, 51_200, 5024, 10.2 + 50.3 - 4.5},
		{"a part is above half", 54_400, 45_600, 5024, 50.3 + 6.3 - 4},
		{"it fits", 0, 51_200, 44_800, 0},
	} {
		o := open(t, 1)
		if c.idle > 0 {
			o.send(text{{1, c.idle}}).end()
		}
		if c.running > 0 {
			o.send(text{{2, c.running}})
		}
		if c.seconds == 0 {
			o.send(text{{3, c.is}})
			continue
		}
		_, k := o.hold(text{{3, c.is}})
		if o.pass(c.seconds - 0.2); o.wake() != 1 || ready(k) {
			t.Errorf("%s: it goes too soon", c.name)
		}
		if o.pass(0.3); o.wake() != 1 || !ready(k) {
			t.Errorf("%s: it still waits: %+v", c.name, k.Wait(o.now))
		}
	}
}

func TestWarmPromptNeverWaits(t *testing.T) {
	o := open(t, 1)
	a := o.send(text{{1, 60_000}})
	a.end()
	o.send(text{{2, 30_000}})
	o.hold(text{{3, 50_000}})
	o.send(text{{1, 60_000}, {4, 20_000}})
}

// TestLeaseEnds: a session that has not come back for twice the time of its prefill leaves room.
func TestLeaseEnds(t *testing.T) {
	o := open(t, 1)
	o.send(text{{1, 64_000}}).end()
	_, held := o.hold(text{{2, 90_000}}) // its price is the most that is saved, in 200 s
	if o.pass(127); o.wake() != 1 || ready(held) {
		t.Fatal("it goes while the session is live")
	}
	if o.pass(2); o.wake() != 1 || !ready(held) {
		t.Fatal("it does not go when the session is no longer live")
	}
}

func TestOrderOfArrival(t *testing.T) {
	o := open(t, 1)
	o.send(text{{1, 64_000}})
	r, first := o.hold(text{{2, 90_000}})
	_, second := o.hold(text{{3, 10_000}}) // it would fit, and is not before the first one
	if w := second.Wait(o.now); w.Ahead != 1 {
		t.Errorf("%d are ahead of the second", w.Ahead)
	}
	o.pass(450)
	if o.wake(); !ready(first) || ready(second) {
		t.Fatal("not the first one goes")
	}
	s, _, _ := o.ask(r)
	if o.wake(); s == nil || ready(second) {
		t.Fatal("the second goes although the first fills the cache")
	}
	s.end()
	if o.pass(200); o.wake() != 1 || !ready(second) {
		t.Fatal("the second does not go")
	}
}

// TestOrderOfWork: a replica gets the order of first attempts, in which a warm one is 20 s sooner.
func TestOrderOfWork(t *testing.T) {
	o := open(t, 1)
	begun := o.now.UnixMilli()
	order := func(s *sent) int64 { return s.w.Order - begun }
	a := o.send(text{{1, 64_000}})
	if a.end(); order(a) != 0 {
		t.Errorf("a cold one has the order %d", order(a))
	}
	r, held := o.hold(text{{2, 90_000}})
	o.pass(1)
	if n := order(o.send(text{{1, 64_000}, {4, 64}})); n != 1000-20_000 {
		t.Errorf("a warm one after a second has the order %d", n)
	}
	held.Leave(o.now)
	o.pass(400)
	r.Ticket = nil // a retry
	if s, _, _ := o.ask(r); s == nil || order(s) != 0 {
		t.Errorf("the first one comes back, and has another order: %+v", s)
	}
}

// TestPlaceIsKept: a retry of the same prompt, after its client left or was refused, is before
// those who came after its first attempt.
func TestPlaceIsKept(t *testing.T) {
	o := open(t, 1)
	o.set.Queue = 2
	o.send(text{{1, 64_000}})
	_, first := o.hold(text{{2, 90_000}})
	_, second := o.hold(text{{3, 90_000}})
	_, third, full := o.ask(o.request(text{{4, 90_000}}))
	if !full || third == nil {
		t.Fatal("a third is held where two may be")
	}
	first.Leave(o.now)
	first.Leave(o.now)
	if w := second.Wait(o.now); w.Ahead != 0 || o.wake() != 1 {
		t.Errorf("%d are ahead of the second, and %d wait, after the first has left", w.Ahead, o.wake())
	}
	_, fourth := o.hold(text{{5, 90_000}})
	_, third = o.hold(text{{4, 90_000}})
	_, first = o.hold(text{{2, 90_000}})
	for i, k := range []*sessions.Ticket{first, second, third, fourth} {
		if w := k.Wait(o.now); w.Ahead != i {
			t.Errorf("%d are ahead of number %d", w.Ahead, i)
		}
	}
}

func TestFullQueuePasses(t *testing.T) {
	o := open(t, 1)
	o.set.Queue, o.set.Full = 1, policy.Pass
	o.send(text{{1, 64_000}})
	o.hold(text{{2, 90_000}})
	o.send(text{{3, 90_000}})
}

func TestRetryAfter(t *testing.T) {
	o := open(t, 1)
	o.send(text{{1, 64_000}})
	var asks []*sessions.Request
	for i := range 7 {
		r, _ := o.hold(text{{2 + i, 90_000}})
		asks = append(asks, r)
	}
	after := func(want ...time.Duration) {
		t.Helper()
		for i, w := range want {
			if got := asks[i].Ticket.RetryAfter(o.now); got != w*time.Second {
				t.Errorf("number %d of the queue is to retry after %s, not %d s", i, got, w)
			}
		}
	}
	after(900)
	for _, next := range []struct {
		after float64
		want  []time.Duration
	}{{400, []time.Duration{400, 800, 900}}, {200, []time.Duration{300, 600, 900}}, {1100, []time.Duration{900, 900}}, {200, []time.Duration{450, 900}}} {
		o.pass(next.after)
		o.wake()
		s, held, _ := o.ask(asks[0])
		if held != nil {
			t.Fatalf("%+v", held.Wait(o.now))
		}
		s.end()
		o.pass(0)
		asks = asks[1:]
		after(next.want...)
	}
}

// TestOwnContextLeavesRoom: what a session had is no reason to hold its own next prompt.
func TestOwnContextLeavesRoom(t *testing.T) {
	o := open(t, 1)
	o.send(text{{9, 1000}}).end()
	s := o.send(text{{1, 64_000}})
	s.end()
	if next := o.send(text{{1, 10_000}, {2, 80_000}}); next.w.Session != s.w.Session {
		t.Error("a compaction is another session's")
	}
}

func TestUnknownSizeHoldsNothing(t *testing.T) {
	o := open(t, 1)
	o.send(text{{1, 64_000}})
	for _, unknown := range []sessions.Site{{Rate: rate}, {Size: size}} {
		r := o.request(text{{2, 64_000}})
		unknown.Cache = o.at[0]
		r.Sites[0] = unknown
		if _, held, _ := o.ask(r); held != nil {
			t.Errorf("a holder of size %d and rate %g holds", unknown.Size, unknown.Rate)
		}
	}
}

type switched bool

func (s *switched) Down(time.Time) bool { return bool(*s) }

// TestNoHeldRequestGoesToAHolderThatIsDown: also one that it is warm at, or whose size is not known any more.
func TestNoHeldRequestGoesToAHolderThatIsDown(t *testing.T) {
	o := open(t, 1)
	var down switched
	x := text{{2, 60_000}}
	o.send(text{{1, 64_000}})
	r := o.request(x)
	r.Sites[0].State = &down
	_, first, _ := o.ask(r)
	o.at[0].Use(x.prompt(), 0, o.now) // it is warm now
	down = true
	if o.wake(); ready(first) {
		t.Fatal("it is called while the holder is down")
	}
	for size, rate := range map[int]float64{size: rate, 0: 0} {
		r = o.request(x)
		r.Sites[0].State, r.Sites[0].Size, r.Sites[0].Rate, r.Ticket = &down, size, rate, first
		if _, held, _ := o.ask(r); held != first {
			t.Errorf("of size %d: it goes", size)
		}
	}
	down = false
	if o.wake(); !ready(first) {
		t.Error("it is not called when the holder is up")
	}
}

func TestOffLetsAllGo(t *testing.T) {
	o := open(t, 1)
	o.send(text{{1, 64_000}})
	_, first := o.hold(text{{2, 90_000}})
	_, second := o.hold(text{{3, 90_000}})
	o.set = policy.Sessions{}
	if n := o.wake(); n != 0 || !ready(first) || !ready(second) {
		t.Errorf("%d requests are held after that was turned off", n)
	}
}

// TestSessionIsKnownWhileHeld: ten thousand other sessions do not make a held request's unknown.
func TestSessionIsKnownWhileHeld(t *testing.T) {
	o := open(t, 1)
	busy := o.send(text{{2, 40_000}})
	first := o.send(text{{1, 60_000}})
	first.end()
	o.pass(130)
	r, held := o.hold(text{{1, 20_000}, {3, 70_000}})
	busy.end()
	for i := range 6000 {
		r := o.request(text{{10 + i, 60_000}})
		r.Sites[0].Rate = 0 // never held there
		s, _, _ := o.ask(r)
		s.end()
	}
	o.pass(1000)
	o.wake()
	if s, _, _ := o.ask(r); s == nil || s.w.Session != first.w.Session || !ready(held) {
		t.Errorf("the held request's session is another one, or it is still held")
	}
}

// TestNotHeldIsTold: a request that may not wait goes, and tells what it would have waited for. Its
// session is at work, where the request really is. A dry one changes nothing.
func TestNotHeldIsTold(t *testing.T) {
	o := open(t, 2)
	o.send(text{{1, 60_000}})
	o.send(text{{2, 70_000}})
	r := o.request(text{{3, 50_000}})
	r.MayHold = false
	for _, dry := range []bool{true, true, false} {
		r.Dry = dry
		place, w, held, _ := o.table.Admit(&o.set, r, o.now)
		if want := (sessions.Wait{Live: 1, Context: 50_000, Lacking: 10_000}); held != nil || place != 0 || w.Lacks != want {
			t.Fatalf("dry %v: it goes to %d, held %v, lacks %+v, want %+v", dry, place, held, w.Lacks, want)
		}
		if !dry {
			w.At(o.at[1])
		}
	}
	if n := o.wake(); n != 0 {
		t.Errorf("%d wait", n)
	}
	if s := o.send(text{{4, 35_000}}); s.place != 0 {
		t.Errorf("it goes to holder %d, although the third is there", s.place)
	}
	o.hold(text{{5, 25_000}}) // it would fit beside the second without the third
	r = o.request(text{{6, 1000}})
	r.MayHold = false
	if s, _, _ := o.ask(r); s.w.Lacks != (sessions.Wait{Ahead: 1, Live: 2, Context: 1000}) {
		t.Errorf("behind the one that waits it lacks %+v", s.w.Lacks)
	}
}

// TestSee: the work at a desk is that of live sessions, as far as the cache has it.
func TestSee(t *testing.T) {
	o := open(t, 2)
	sent := o.send(text{{1, 60_000}})
	want := func(want sessions.Seen) {
		t.Helper()
		if v, ok := o.table.See(o.at[0], o.now); !ok || v != want {
			t.Errorf("%+v (%v), want %+v", v, ok, want)
		}
	}
	want(sessions.Seen{Live: 1, Context: 60_000, Size: size})
	sent.end()
	o.pass(119)
	want(sessions.Seen{Live: 1, Context: 60_000, Size: size})
	o.pass(2)
	want(sessions.Seen{Size: size})
	o.at = o.at[1:]
	o.send(text{{2, 10_000}})
	if v, ok := o.table.See(o.at[0], o.now); !ok || v.Live != 1 {
		t.Errorf("%+v at the other", v)
	}
	r := o.request(text{{3, 10_000}})
	r.Sites[0] = sessions.Site{Cache: new(history.History).Of(index.Holder{}), Rate: rate}
	o.ask(r)
	if v, ok := o.table.See(r.Sites[0].Cache, o.now); ok {
		t.Errorf("%+v at a holder of unknown size", v)
	}
}

// TestDesksAreForgotten: an hour after its last request, the desk of a holder is forgotten when
// another one begins, unless it still has requests.
func TestDesksAreForgotten(t *testing.T) {
	o := open(t, 3)
	only := func(i int, x text) *sent {
		r := o.request(x)
		r.Sites = r.Sites[i : i+1]
		_, w, _, _ := o.table.Admit(&o.set, r, o.now)
		return &sent{o, r, w, o.at[i].Use(r.Prompt, r.Answer, o.now), i}
	}
	only(0, text{{1, 60_000}}).end()
	busy := only(1, text{{2, 60_000}})
	o.pass(3601)
	only(2, text{{3, 60_000}})
	for i, want := range []bool{false, true, true} {
		if _, ok := o.table.See(o.at[i], o.now); ok != want {
			t.Errorf("holder %d has a desk: %v", i, ok)
		}
	}
	busy.end()
}

// TestOldNewsOfAPlace: where an earlier request of a session was served says nothing of its latest.
func TestOldNewsOfAPlace(t *testing.T) {
	o := open(t, 2)
	r := o.request(text{{1, 60_000}})
	r.Session = 7
	early, _, _ := o.ask(r)
	early.end()
	r.Sites[0].Cached = r.Tokens
	if late, _, _ := o.ask(r); late.place != 0 {
		t.Fatal("a warm one is elsewhere")
	}
	early.w.At(o.at[1])
	if s := o.send(text{{2, 60_000}}); s.place != 1 {
		t.Errorf("another one goes to holder %d, where the session is", s.place)
	}
}
