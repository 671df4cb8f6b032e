package simulator

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// Policy is a router under test. Route decides; the other methods pass a router's
// observations.
type Policy interface {
	// Route returns a replica for r at now; another number leaves the choice to
	// the data plane's own balancing (P2C).
	Route(now float64, r *Request) int
	Routed(now float64, r *Request) // r.Replica got the request
	First(now float64, r *Request)  // its first token came
	Done(now float64, r *Request)
	Stored(now float64, replica int, blocks []int32)
	Removed(now float64, replica int, blocks []int32)
	Scraped(now float64, pages []Page)
}

// GroupPolicy is a Policy that follows every KV cache group of the replicas. If there are
// several, a Sim calls Changed in place of Stored and Removed.
type GroupPolicy interface {
	Changed(now float64, replica int, changes []Change)
}

// TierPolicy is a Policy that follows the tiers below the replicas' GPUs.
type TierPolicy interface {
	Kept(now float64, replica int, blocks []int32)
	Dropped(now float64, replica int, blocks []int32)
}

// Page is the content of one replica's metrics.
type Page struct {
	Waiting int     `json:"waiting"`
	Running int     `json:"running"`
	KVUsage float64 `json:"kv_usage"` // 0 to 1

	Answers       float64 `json:"answers,omitempty"`        // that have ended since the start
	AnswerTokens  float64 `json:"answer_tokens,omitempty"`  // of these
	AnswerSeconds float64 `json:"answer_seconds,omitempty"` // from their first token to their last
}

// Config is one run. A zero value means the default, if the field has one.
type Config struct {
	Replicas   int
	Hardware   Hardware
	Scheduler  func() Scheduler // of each replica; nil = this package's own, with a cache of full attention alone
	Policy     func(s *Sim) Policy
	Pooled     bool    // one cache for all replicas, of their capacity together
	EventDelay float64 // s; default 10 ms, negative is none
	Scrape     float64 // s between two readings of metrics; default 50 ms
	Slow       float64 // factor on the step time of replica 0; 0 = as fast as the others
	Warm       float64 // share of the first requests that do not count; default 0.1
	Seed       uint64
	Handover   float64            // s from the end of a prefill until its KV cache begins to move to another replica
	Bandwidth  float64            // tokens of KV cache per second between two replicas; 0 = any number at once
	Tier       Tier               // below the GPUs; without a Capacity there is none
	Closed     int                // so many requests are in flight at all times, in the order of the trace; 0 = they arrive at a rate
	Sessions   int                // so many sessions are open at all times, in the order of the trace: each request comes when the answer before it is there and its Think has passed; 0 = they arrive at a rate
	Progress   func(done, of int) // called after every thousandth request; nil = not called
}

// Sim is one run in progress.
type Sim struct {
	c        Config
	requests []*Request
	engines  []*engine
	policy   Policy
	rng      *rand.Rand
	now      float64

	moves  []move  // KV caches on their way, by arrival
	events []event // published, not yet delivered
	scrape float64 // time of the next
	pages  []Page
	router *state
	block  int // tokens of the trace's blocks
	open   int // requests in flight

	next     int                   // of the requests that arrive at a rate
	sessions []*Request            // first requests of sessions that have not begun
	behind   map[*Request]*Request // request → the next one of its session; nil = requests arrive at a rate
	due      []*Request            // of open sessions, by arrival
	drained  float64               // when no more sessions began
}

type event struct {
	at      float64
	replica int
	Ended
}

// New prepares a run of t with arrivals at rate requests per second.
func New(c Config, t *Trace, rate float64) *Sim {
	if c.EventDelay == 0 {
		c.EventDelay = 0.01
	}
	c.EventDelay = max(0, c.EventDelay)
	if c.Scrape == 0 {
		c.Scrape = 0.05
	}
	if c.Warm == 0 {
		c.Warm = 0.1
	}
	s := &Sim{c: c, block: t.block(), rng: rand.New(rand.NewPCG(c.Seed, 5)), pages: make([]Page, c.Replicas)}
	scale := float64(len(t.Requests)) / rate / max(t.Duration, 1e-9)
	for i := range t.Requests {
		r := t.Requests[i]
		r.Prefill = -1
		r.At = (r.At - t.Requests[0].At) * scale
		s.requests = append(s.requests, &r)
	}
	var shared *pool
	var store *pool
	if c.Tier.Shared {
		store = newPool(t.Blocks, s.block, c.Replicas*c.Tier.Capacity)
	}
	if c.Pooled {
		shared = newPool(t.Blocks, s.block, c.Replicas*c.Hardware.Capacity)
	}
	for i := range c.Replicas {
		e := &engine{hw: &s.c.Hardware, slow: 1}
		if c.Scheduler != nil {
			e.Scheduler = c.Scheduler()
		} else {
			d := &dense{hw: e.hw, cache: newCache(t.Blocks, s.block, c.Hardware.Capacity), pool: shared, block: s.block, exact: t.Block > 0}
			if d.lower = newTier(&s.c.Tier, store, t.Blocks, s.block); d.lower != nil {
				d.lower.now = &s.now
			}
			e.Scheduler = d
		}
		if i == 0 && c.Slow > 0 {
			e.slow = c.Slow
		}
		s.engines = append(s.engines, e)
	}
	s.router = newState(c.Replicas, t.Blocks)
	s.policy = c.Policy(s)
	s.beginSessions()
	return s
}

// Run runs the trace to its end.
func (s *Sim) Run() Result {
	for {
		at, which := math.Inf(1), -1
		for i, e := range s.engines {
			if e.busy && e.stepEnd < at {
				at, which = e.stepEnd, i
			}
		}
		r := s.upcoming()
		arrival := r != nil && r.At < at
		if arrival {
			at = r.At
		}
		if len(s.moves) > 0 && s.moves[0].at < at {
			s.now = s.moves[0].at
			s.deliver(s.now)
			s.arrived()
			continue
		}
		if wake, i := s.nextLoad(at); i >= 0 {
			s.now = wake
			s.deliver(s.now)
			s.engines[i].begin(s.now)
			continue
		}
		if !arrival && which < 0 {
			return s.result()
		}
		s.deliver(at)
		s.readMetrics(at)
		s.now = at
		if !arrival {
			s.endStep(which)
			continue
		}
		if s.behind != nil {
			s.due = s.due[1:]
		}
		s.arrive(r)
		if s.next++; s.c.Progress != nil && s.next%1000 == 0 {
			s.c.Progress(s.next, len(s.requests))
		}
	}
}

func (s *Sim) endStep(i int) {
	e := s.engines[i]
	ended := e.End()
	if len(ended.Stored)+len(ended.Removed)+len(ended.Changes)+len(ended.Kept)+len(ended.Dropped) > 0 {
		s.events = append(s.events, event{s.now + s.c.EventDelay, i, ended})
	}
	s.deliver(s.now) // without delay, policies get events before the first token
	for _, r := range ended.First {
		s.first(r)
	}
	for _, r := range ended.Done {
		if r.of != nil {
			s.move(r)
			continue
		}
		s.done(r)
	}
	e.begin(s.now)
}

func (s *Sim) first(r *Request) {
	r.First = s.now
	s.router.first(r)
	if r.of != nil {
		return
	}
	s.policy.First(s.now, r)
}

func (s *Sim) done(r *Request) {
	r.Done = s.now
	s.open--
	e := s.engines[r.Replica]
	e.answers++
	e.tokens += r.Output
	e.seconds += r.Done - r.First
	s.router.done(r)
	s.policy.Done(s.now, r)
	s.follow(r)
}

func (s *Sim) arrive(r *Request) {
	if s.c.Scheduler == nil && r.Input+r.Output > s.c.Hardware.Capacity { // vLLM's max_model_len is no more than the cache holds
		r.refused = true
		s.follow(r)
		return
	}
	s.open++
	r.Replica = s.policy.Route(s.now, r)
	if r.Replica < 0 || r.Replica >= s.c.Replicas {
		r.Replica = s.twoChoices()
	}
	split := s.split(r)
	s.router.sent(r)
	s.policy.Routed(s.now, r)
	if !split {
		s.enqueue(r)
	}
}

func (s *Sim) enqueue(r *Request) {
	e := s.engines[r.Replica]
	e.Enqueue(r)
	if !e.busy {
		e.begin(s.now)
	}
}

// twoChoices chooses as Envoy's LEAST_REQUEST: the less loaded of two random replicas.
func (s *Sim) twoChoices() int {
	a, b := s.rng.IntN(s.c.Replicas), s.rng.IntN(s.c.Replicas)
	if s.router.inFlight[b] < s.router.inFlight[a] {
		return b
	}
	return a
}

// deliver passes the events that have arrived by t to the policy, each at its time.
func (s *Sim) deliver(t float64) {
	n := 0
	for n < len(s.events) && s.events[n].at <= t {
		e := &s.events[n]
		n++
		if s.c.Pooled {
			continue
		}
		s.router.apply(e)
		if g, ok := s.policy.(GroupPolicy); ok && len(e.Changes) > 0 {
			g.Changed(e.at, e.replica, e.Changes)
			continue
		}
		if len(e.Removed) > 0 { // first: a block may come back in the step that evicted it
			s.policy.Removed(e.at, e.replica, e.Removed)
		}
		if len(e.Stored) > 0 {
			s.policy.Stored(e.at, e.replica, e.Stored)
		}
		if p, ok := s.policy.(TierPolicy); ok && len(e.Kept)+len(e.Dropped) > 0 {
			p.Dropped(e.at, e.replica, e.Dropped)
			p.Kept(e.at, e.replica, e.Kept)
		}
	}
	s.events = slices.Delete(s.events, 0, n)
}

// readMetrics reads metrics at the last due time before at.
func (s *Sim) readMetrics(at float64) {
	if s.scrape > at {
		return
	}
	for i, e := range s.engines {
		s.pages[i] = e.Load()
		s.pages[i].Answers, s.pages[i].AnswerTokens, s.pages[i].AnswerSeconds = float64(e.answers), float64(e.tokens), e.seconds
	}
	last := s.scrape + s.c.Scrape*math.Floor((at-s.scrape)/s.c.Scrape)
	s.policy.Scraped(last, s.pages)
	s.scrape = last + s.c.Scrape
}

// state is a router's record of its requests, and its index of the events.
type state struct {
	inFlight []int
	awaiting []int
	pending  []float64 // s of expected prefill of the awaiting
	uncached []int     // tokens of the same
	live     []float64 // context tokens of requests in flight
	active   []map[int32]int
	index    []uint64    // block → replicas that have it, by events
	coming   [][]float64 // replica, block → end of the time in which the router expects it
	matched  []int
}

func newState(replicas, blocks int) *state {
	st := &state{
		inFlight: make([]int, replicas), awaiting: make([]int, replicas), pending: make([]float64, replicas),
		uncached: make([]int, replicas), live: make([]float64, replicas), active: make([]map[int32]int, replicas),
		index: make([]uint64, blocks), coming: make([][]float64, replicas), matched: make([]int, replicas),
	}
	for i := range st.active {
		st.active[i] = map[int32]int{}
	}
	return st
}

func (st *state) sent(r *Request) {
	k := r.Replica
	st.inFlight[k]++
	st.awaiting[k]++
	st.pending[k] += r.cost
	st.uncached[k] += r.uncached
	st.live[k] += float64(r.Input)
	for _, b := range r.Blocks {
		st.active[k][b]++
	}
}

func (st *state) first(r *Request) {
	st.awaiting[r.Replica]--
	st.pending[r.Replica] -= r.cost
	st.uncached[r.Replica] -= r.uncached
}

func (st *state) done(r *Request) {
	k := r.Replica
	st.inFlight[k]--
	st.live[k] -= float64(r.Input)
	for _, b := range r.Blocks {
		if st.active[k][b]--; st.active[k][b] <= 0 {
			delete(st.active[k], b)
		}
	}
}

func (st *state) apply(e *event) {
	bit := uint64(1) << e.replica
	for _, b := range e.Removed {
		st.index[b] &^= bit
	}
	for _, b := range e.Stored {
		st.index[b] |= bit
	}
}

// matches returns the number of leading blocks of each replica by its events and, with
// expected, also by its requests.
func (st *state) matches(blocks []int32, expected bool, now float64) []int {
	clear(st.matched)
	alive := uint64(1)<<len(st.matched) - 1
	for i, b := range blocks {
		have := st.index[b]
		for r := 0; expected && r < len(st.coming); r++ {
			if st.coming[r] != nil && st.coming[r][b] > now {
				have |= 1 << r
			}
		}
		for gone := alive &^ have; gone != 0; gone &= gone - 1 {
			st.matched[bits.TrailingZeros64(gone)] = i
		}
		if alive &= have; alive == 0 {
			return st.matched
		}
	}
	for ; alive != 0; alive &= alive - 1 {
		st.matched[bits.TrailingZeros64(alive)] = len(blocks)
	}
	return st.matched
}

func (st *state) expect(replica int, blocks []int32, until float64) {
	if st.coming[replica] == nil {
		st.coming[replica] = make([]float64, len(st.index))
	}
	for _, b := range blocks {
		st.coming[replica][b] = max(st.coming[replica][b], until)
	}
}
