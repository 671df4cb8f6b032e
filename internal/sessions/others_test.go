package sessions_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"warmroute/internal/sessions"
)

// tell delivers to another router what this one holds, and which places it keeps.
func (o *office) tell(name string, to *office) {
	o.table.Tell(o.now, func(model string, at time.Time) { to.table.Holds(name, model, at, to.now) },
		func(model string, p sessions.Place) { to.table.Keep(model, p, to.now) })
}

// arrive delivers to another router that a request was sent.
func (s *sent) arrive(name string, to *office) {
	to.visit(name, s.r.Answer, &sessions.Visit{
		Prompt: s.r.Prompt, Tokens: s.r.Tokens, Context: s.r.Tokens + s.r.Answer, Paid: s.w.Paid, Cache: to.at[s.place],
	})
}

// gone records that another router is gone, as a decider does.
func (o *office) gone(router string) {
	o.sent.Gone(router, o.now)
	o.table.Gone(router)
}

// visit records a request of another router, as a decider does.
func (o *office) visit(from string, answer int, v *sessions.Visit) {
	v.Cache.Arrived(from, v.Prompt, answer, o.now, o.table.Arrived(&o.set, v, o.now).End)
}

// leave ends a request, and delivers that.
func (s *sent) leave(name string, to *office) {
	s.end()
	last := s.r.Prompt.Keys[len(s.r.Prompt.Keys)-1]
	to.at[s.place].Left(name, last, true, to.now)
}

// asked is a request at one router.
type asked struct {
	at     *office
	text   text
	ticket *sessions.Ticket
	sent   *sent
}

func (a *asked) ask() {
	r := a.at.request(a.text)
	r.Ticket = a.ticket
	a.sent, a.ticket, _ = a.at.ask(r)
}

func (a *asked) String() string {
	if a.sent == nil {
		return "held"
	}
	return fmt.Sprint("at ", a.sent.place)
}

// client is a session's: its request at a router that sees all, and at one of two.
type client struct {
	text       text
	whole, own *asked // nil: it thinks
	router     int
	left       bool // it has given up its latest request
}

// pair are two routers that tell each other everything at once, beside one that sees all requests.
type pair struct {
	whole   *office
	all     []*office
	clients []*client
}

func (p *pair) name(router int) string { return fmt.Sprint("router ", router) }

// settle lets all requests go that may, at both sides.
func (p *pair) settle() {
	again := true
	for n := 0; again; n++ {
		if again = false; n > 1000 {
			p.whole.t.Fatal("requests are called again and again")
		}
		p.whole.wake()
		for i, o := range p.all {
			o.wake()
			o.tell(p.name(i), p.all[1-i])
		}
		for _, c := range p.clients {
			for _, a := range []*asked{c.whole, c.own} {
				if a == nil || a.ticket == nil || !ready(a.ticket) {
					continue
				}
				again = true
				if a.ask(); a == c.own && a.sent != nil {
					a.sent.arrive(p.name(c.router), p.all[1-c.router])
				}
			}
		}
	}
}

// pass lets a tenth of a second pass.
func (p *pair) pass() {
	for _, o := range append([]*office{p.whole}, p.all...) {
		o.pass(0.1)
	}
	p.settle()
}

// act lets a client ask, its answer end, or give up a request that waits, which it sends again later.
func (p *pair) act(c *client, rng *rand.Rand) {
	switch {
	case c.own == nil:
		c.router = rng.IntN(2)
		c.whole, c.own = &asked{at: p.whole, text: c.text}, &asked{at: p.all[c.router], text: c.text}
		c.whole.ask()
		if c.own.ask(); c.own.sent != nil {
			c.own.sent.arrive(p.name(c.router), p.all[1-c.router])
		}
	case c.own.ticket != nil && c.whole.ticket != nil:
		if rng.IntN(4) == 0 {
			c.whole.ticket.Leave(p.whole.now)
			c.own.ticket.Leave(c.own.at.now)
			c.whole, c.own, c.left = nil, nil, true
		}
	case c.own.sent != nil && c.whole.sent != nil:
		c.whole.sent.end()
		c.own.sent.leave(p.name(c.router), p.all[1-c.router])
		c.whole, c.own = nil, nil
		if c.text = append(c.text, part{rng.Int() >> 32, 32 * rng.IntN(60)}); c.text.tokens() > 40_000 {
			c.text = text{{rng.Int() >> 32, 16_000}}
		}
	}
}

// TestRoutersHoldAsOne: two routers, of which either gets a request, hold the same requests for the
// same time, and send them to the same places, as one that gets all.
func TestRoutersHoldAsOne(t *testing.T) {
	held, moved, back := 0, 0, 0
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := &pair{whole: open(t, 2), all: []*office{open(t, 2), open(t, 2)}}
		for _, o := range append([]*office{p.whole}, p.all...) {
			o.send(text{{1, 64}}).end() // all buckets begin to fill
		}
		for range 14 {
			p.clients = append(p.clients, &client{text: text{{rng.Int() >> 32, 16_000}}})
		}
		for range 2000 {
			p.pass()
			c := p.clients[rng.IntN(len(p.clients))]
			was := c.router
			p.act(c, rng)
			p.settle()
			for i, c := range p.clients {
				if c.own != nil && c.own.String() != c.whole.String() {
					t.Fatalf("seed %d: the request of client %d is %v, for the router that sees all it is %v", seed, i, c.own, c.whole)
				}
				if c.own != nil && c.own.sent == nil {
					held++
				}
			}
			if c.router != was {
				if moved++; c.left {
					back++
				}
			}
			c.left = c.left && c.own == nil
		}
	}
	t.Logf("%d times a request was held, %d times a session changed the router, %d times after it had given up", held, moved, back)
	if held < 10_000 || moved < 200 || back < 100 {
		t.Error("too little happened")
	}
}

// crowded are two routers, of which the first has sent a session that fills most of the only cache.
func crowded(t *testing.T) (from, to *office, s *sent) {
	from, to = open(t, 1), open(t, 1)
	s = from.send(text{{1, 80_000}})
	s.arrive("a", to)
	return from, to, s
}

// TestAnotherRoutersSession leaves no room while it is live, and never for itself; one that is gone is
// forgotten as if its requests were answered.
func TestAnotherRoutersSession(t *testing.T) {
	_, to, s := crowded(t)
	_, k := to.hold(text{{2, 40_000}})
	to.send(text{{1, 80_000}, {3, 64}}).end() // it goes on here: warm
	to.pass(1)
	s.leave("a", to)
	if to.pass(158); to.wake() != 1 || ready(k) {
		t.Error("the session is not live for twice the time of its prefill")
	}
	if to.pass(4); to.wake() != 1 || !ready(k) {
		t.Error("it is live for longer")
	}
	for name, ends := range map[string]func(o *office){
		"gone":          func(o *office) { o.gone("a") },
		"another gone":  func(o *office) { o.gone("b") },
		"its end":       func(o *office) { s.leave("a", o) },
		"another's end": func(o *office) { s.leave("b", o) },
		"untold": func(o *office) {
			o.pass(601)
			o.visit("b", 0, &sessions.Visit{Prompt: text{{7, 64}}.prompt(), Tokens: 64, Context: 64, Cache: o.at[0]})
		},
	} {
		_, to, s = crowded(t)
		to.set.Share = 1e-6
		_, k := to.hold(text{{2, 40_000}})
		ends(to)
		to.pass(159)
		to.wake()
		if ready(k) {
			t.Errorf("%s: the session is forgotten at once", name)
		}
		to.pass(2)
		to.wake()
		if over := name != "another gone" && name != "another's end"; ready(k) != over {
			t.Errorf("%s: there is room: %v, want %v", name, ready(k), over)
		}
	}
}

// TestAnotherRouterPays: what another router has paid is gone here, too.
func TestAnotherRouterPays(t *testing.T) {
	from, to, s := crowded(t)
	s.leave("a", to)
	to.send(text{{4, 64}}).end() // their buckets begin to fill
	from.table.Admit(&from.set, from.request(text{{2, 64}}), from.now)
	from.pass(15)
	to.pass(15)
	p := from.send(text{{3, 20_928}})
	if p.w.Paid < 0.99 || p.w.Paid > 1 {
		t.Fatalf("%v s were paid", p.w.Paid)
	}
	p.arrive("a", to)
	p.leave("a", to)
	_, k := to.hold(text{{2, 1984}}) // 1.98 s too much
	if to.pass(6); to.wake() != 1 || ready(k) {
		t.Error("it is paid twice")
	}
}

// TestOrderAmongRouters: a request waits behind an earlier one that another router holds, as long as
// that router says so.
func TestOrderAmongRouters(t *testing.T) {
	for name, end := range map[string]func(from, to *office, k *sessions.Ticket){
		"it leaves": func(from, to *office, k *sessions.Ticket) { k.Leave(from.now); from.tell("a", to) },
		"gone":      func(_, to *office, _ *sessions.Ticket) { to.table.Gone("a") },
		"silent":    func(_, to *office, _ *sessions.Ticket) { to.pass(3) },
	} {
		from, to, _ := crowded(t)
		r, k := from.hold(text{{2, 50_000}})
		r.Ticket = k
		from.pass(1)
		to.pass(1)
		from.tell("a", to) // no request of the model has come to the other router
		if s := to.send(text{{3, 1000}}); s.w.Lacks != (sessions.Wait{}) {
			t.Errorf("%s: %+v", name, s.w.Lacks)
		}
		from.pass(1)
		to.pass(1)
		from.tell("a", to)
		_, small := to.hold(text{{4, 1000}})
		if w := small.Wait(to.now); w.Ahead != 1 || w.Lacking != 0 {
			t.Errorf("%s: it waits for %+v", name, w)
		}
		to.tell("b", from)
		if from.wake(); k.Wait(from.now).Ahead != 0 {
			t.Error("the earlier one waits for the later one")
		}
		end(from, to, k)
		if to.wake(); !ready(small) {
			t.Errorf("%s: it still waits", name)
		}
	}
}

// TestPlaceIsUsedOnce: a retry that another router has sent leaves no place behind.
func TestPlaceIsUsedOnce(t *testing.T) {
	from, to, s := crowded(t)
	to.send(text{{1, 64}}).end() // the model is known there
	_, k := from.hold(text{{2, 60_000}})
	k.Leave(from.now)
	from.tell("a", to)
	from.pass(1)
	to.pass(1)
	_, later := from.hold(text{{3, 60_000}})
	s.leave("a", to)
	to.pass(200)
	to.send(text{{2, 60_000}}).arrive("b", from)
	from.at[0].Clear() // the prompt is cold again
	if _, again := from.hold(text{{2, 60_000}}); later.Wait(from.now).Ahead != 0 || again.Wait(from.now).Ahead != 1 {
		t.Error("the same prompt has the place of an attempt that was served elsewhere")
	}
}

// TestNamesGoBetweenRouters: a header's session is one, whichever router has its next request.
func TestNamesGoBetweenRouters(t *testing.T) {
	a, b := open(t, 1), open(t, 1)
	x := text{{1, 20_000}}
	turn := func(at, other *office) *sent {
		r := at.request(x)
		r.Session = 7
		s, _, _ := at.ask(r)
		s.arrive("r", other)
		s.leave("r", other)
		x = append(x, part{len(x) + 1, 2000})
		return s
	}
	turn(a, b)
	if s := turn(b, a); s.w.Turn != 2 {
		t.Errorf("at the other router it is turn %d", s.w.Turn)
	}
	if s := turn(a, b); s.w.Turn != 3 {
		t.Errorf("back at the first it is turn %d", s.w.Turn)
	}
	if seen, _ := b.table.See(b.at[0], b.now); seen.Live != 1 {
		t.Errorf("%d sessions are live", seen.Live)
	}
}

// TestManyVisitors: requests whose end is never told are bounded.
func TestManyVisitors(t *testing.T) {
	o := open(t, 1)
	o.send(text{{1, 64}}).end()
	for i := range 5000 {
		o.visit("a", 0, &sessions.Visit{Prompt: text{{10 + i, 64}}.prompt(), Tokens: 64, Context: 64, Cache: o.at[0]})
	}
	o.table.Arrived(&o.set, &sessions.Visit{Prompt: text{}.prompt(), Cache: o.at[0]}, o.now).End(o.now)
	o.pass(1)
	if v, _ := o.table.See(o.at[0], o.now); v.Live != 1024 {
		t.Errorf("%d requests are in flight", v.Live)
	}
}
