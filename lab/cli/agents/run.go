package agents

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"warmroute/lab/simulator"
	"warmroute/lab/simulator/brain"
)

// Options say what is run. Numbers other than Step, Patience and Jobs must be positive.
type Options struct {
	All      [][]Turn // the sessions
	Tokens   int      // of a replica's KV cache
	Rate     float64  // tokens of prefill in a second
	Step     float64  // s that a step of an engine takes at least; 0 = 25 ms
	Clients  int
	Replicas int
	Routers  int     // that hold; below 2: one
	Delay    float64 // s that a message between them takes; below 0 they send none
	Hours    float64 // that count
	Seed     uint64
	Share    float64        // of the hold: policy.Sessions.Share
	Patience float64        // s after which a client gives up and tries again at once; 0 = never
	Tier     simulator.Tier // CPU memory of each replica; Capacity 0 = none. Only one router, and only the simulator's own engines, have one
	Jobs     int            // a fixed list of so many sessions is run to its end; 0 = sessions follow each other

	Engine func(hw simulator.Hardware, block int) simulator.Engine // of a replica, with blocks of that many tokens; nil = simulator's
}

// Step times and batches of the engines.
const (
	usualStep = 0.025 // the least
	budget    = 8192
	places    = 256
	mostIDs   = 1 << 23 // of blocks
	wakeEvery = 0.1
)

// engine is a replica.
type engine struct {
	simulator.Engine
	end                    float64 // of its step; infinite: it has none
	answers, tokens, spent float64
}

// run is one cell in progress.
type run struct {
	o       *Options
	crowd   *crowd
	router  router
	engines []*engine
	of      map[int]*client // by request
	now     float64
	wake    float64 // the next time that held requests are looked at
	scrape  float64
	id      int
	held    int
	result  Cell
	ttft    []float64
	hit, in int

	turns, right int // that the router has assigned to sessions, and of these, to their own
}

// Run runs one cell of a policy.
func Run(ctx context.Context, name string, o Options) (Cell, error) {
	p, err := newRouter(name, &o)
	if err != nil {
		return Cell{}, err
	}
	r := &run{o: &o, crowd: newCrowd(o.All, o.Clients, o.Seed, o.Jobs), router: p, of: map[int]*client{}}
	r.result = Cell{Policy: name, Sessions: o.Clients}
	if o.Engine == nil {
		o.Engine = r.simulated
	}
	for range o.Replicas {
		e := o.Engine(simulator.Hardware{Capacity: o.Tokens, Budget: budget, Sequences: places}, block)
		r.engines = append(r.engines, &engine{Engine: e, end: math.Inf(1)})
	}
	for _, k := range r.crowd.clients {
		if !r.crowd.begin(k) {
			k.at = math.Inf(1)
		}
	}
	for r.next() {
		if ctx.Err() != nil {
			return Cell{}, ctx.Err()
		}
		if int(r.crowd.fresh) > mostIDs-mostPrompt {
			return Cell{}, errors.New("agents: the run is too long: more prompts than there are numbers for their blocks")
		}
	}
	return r.ended(), nil
}

// simulated returns the simulator's engine.
func (r *run) simulated(hw simulator.Hardware, block int) simulator.Engine {
	if r.o.Tier.Capacity > 0 {
		return simulator.NewTiered(hw, mostIDs, block, &r.o.Tier, &r.now)
	}
	return simulator.NewDense(hw, mostIDs, block)
}

// mostPrompt is more blocks than a prompt has.
const mostPrompt = 1 << 15

// next does what comes next; false: the run is over.
func (r *run) next() bool {
	at, engine, who := math.Inf(1), -1, -1
	for i, e := range r.engines {
		if e.end < at {
			at, engine = e.end, i
		}
	}
	for i, k := range r.crowd.clients {
		if k.at < at {
			at, engine, who = k.at, -1, i
		}
	}
	if r.held > 0 && r.wake < at {
		at, engine, who = r.wake, -1, -1
	}
	if math.IsInf(at, 1) || r.o.Jobs == 0 && at >= spread+3600*r.o.Hours {
		return false
	}
	r.now = at
	r.read()
	switch {
	case engine >= 0:
		r.step(engine)
	case who >= 0:
		r.act(r.crowd.clients[who])
	}
	if r.held > 0 && r.now >= r.wake {
		r.wake = r.now + wakeEvery
		for _, id := range r.router.Wake(r.now) {
			r.route(r.of[id])
		}
	}
	return true
}

// read gives the router the replicas' metrics once a second.
func (r *run) read() {
	if r.now < r.scrape {
		return
	}
	r.scrape = r.now + 1
	pages := make([]simulator.Page, len(r.engines))
	for i, e := range r.engines {
		pages[i] = e.Load()
		pages[i].Answers, pages[i].AnswerTokens, pages[i].AnswerSeconds = e.answers, e.tokens, e.spent
	}
	r.router.Scraped(r.now, pages)
}

// act lets a client ask, or give up and ask again.
func (r *run) act(k *client) {
	if k.request != nil {
		r.giveUp(k)
		return
	}
	for {
		k.request = r.crowd.ask(k, r.id)
		if k.request.Input+k.request.Output <= r.o.Tokens {
			break
		}
		if !r.crowd.begin(k) { // the model's context is no longer than the cache
			k.request, k.at = nil, math.Inf(1)
			return
		}
	}
	k.first = r.now
	r.send(k)
}

// send routes a client's request as a new one.
func (r *run) send(k *client) {
	k.request.ID, k.request.At = r.id, r.now
	r.of[r.id] = k
	r.id++
	k.at = math.Inf(1)
	if r.o.Patience > 0 {
		k.at = r.now + r.o.Patience
	}
	r.route(k)
}

// route asks the router where a request goes.
func (r *run) route(k *client) {
	to := r.router.Route(r.now, k.request)
	if k.held {
		r.held--
	}
	if k.held = to == brain.Held; k.held {
		if r.held++; r.held == 1 {
			r.wake = r.now + wakeEvery
		}
		return
	}
	if to < 0 {
		to = k.number % len(r.engines)
	}
	r.assign(k)
	k.request.Replica = to
	r.router.Routed(r.now, k.request)
	e := r.engines[to]
	if e.Enqueue(k.request); math.IsInf(e.end, 1) {
		r.begin(e)
	}
}

// assign counts whether the router knows the session of a request that it has let go.
func (r *run) assign(k *client) {
	knows, ok := r.router.(interface{ Work(id int) (uint64, int) })
	if !ok || r.o.Patience > 0 {
		return
	}
	session, turn := knows.Work(k.request.ID)
	if session == 0 {
		return
	}
	r.turns++
	if k.begins && turn == 1 || !k.begins && session == k.session {
		r.right++
	}
	k.session = session
}

// giveUp lets a client leave that has waited too long for its first token, and ask again.
func (r *run) giveUp(k *client) {
	if k.at = math.Inf(1); k.request.First > 0 {
		return
	}
	if r.router.Left(r.now, k.request); k.held {
		k.held = false
		r.held--
	} else {
		r.engines[k.request.Replica].Abort(k.request)
	}
	delete(r.of, k.request.ID)
	again := *k.request
	k.request = &again
	r.result.GivenUp++
	r.send(k)
}

// begin begins an engine's next step.
func (r *run) begin(e *engine) {
	b, any := e.Begin()
	if e.end = math.Inf(1); any {
		e.end = r.now + max(cmp.Or(r.o.Step, usualStep), float64(b.Prompt)/r.o.Rate)
	} else if d, ok := e.Engine.(interface{ Ready() float64 }); ok {
		e.end = d.Ready()
	}
}

// step ends an engine's step.
func (r *run) step(i int) {
	e := r.engines[i]
	ended := e.End()
	if len(ended.Removed) > 0 {
		r.router.Removed(r.now, i, ended.Removed)
	}
	if len(ended.Stored) > 0 {
		r.router.Stored(r.now, i, ended.Stored)
	}
	if p, ok := r.router.(simulator.TierPolicy); ok && len(ended.Kept)+len(ended.Dropped) > 0 {
		p.Kept(r.now, i, ended.Kept)
		p.Dropped(r.now, i, ended.Dropped)
	}
	for _, q := range ended.First {
		q.First = r.now
		r.router.First(r.now, q)
	}
	for _, q := range ended.Done {
		q.Done = r.now
		e.answers++
		e.tokens += float64(q.Output)
		e.spent += q.Done - q.First
		r.router.Done(r.now, q)
		r.done(r.of[q.ID])
		delete(r.of, q.ID)
	}
	r.begin(e)
}

// done counts a request, and lets its client think.
func (r *run) done(k *client) {
	if q := k.request; r.now >= spread || r.o.Jobs > 0 {
		r.result.Completed++
		k.answers++
		r.ttft = append(r.ttft, q.First-k.first)
		r.hit, r.in = r.hit+q.Hit, r.in+q.Input
	}
	r.crowd.answered(k, r.now)
}

// ended returns the cell.
func (r *run) ended() Cell {
	c := r.result
	if r.turns > 0 {
		c.Assigned = float64(r.right) / float64(r.turns)
	}
	c.HitRate = float64(r.hit) / float64(max(1, r.in))
	slices.Sort(r.ttft)
	for _, t := range r.ttft {
		c.Mean += t / float64(len(r.ttft))
	}
	if n := len(r.ttft); n > 0 {
		c.P95, c.Max = r.ttft[min(n-1, n*95/100)], r.ttft[n-1]
	}
	for _, k := range r.crowd.clients {
		if k.request == nil {
			continue
		}
		if k.request.First == 0 {
			c.Max = max(c.Max, r.now-k.first)
		}
		if k.answers == 0 && r.now-k.first > 1800*r.o.Hours { // others have thought for most of the time
			c.ShutOut++
		}
	}
	if r.o.Jobs > 0 {
		c.Makespan = r.now
	}
	return c
}
