package vllmsim

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// engine is one data-parallel rank: a scheduler over one block pool, after
// vllm/v1/core/sched/scheduler.py (first come first served, chunked prefill,
// preemption of the newest, the whole prompt must fit before it starts).
type engine struct {
	rank    int
	o       Options
	publish func(events []event)

	wake chan struct{} // cap 1: there may be work

	surroundings
	layout

	mu      sync.Mutex // guards everything below
	hasher  *hasher
	pool    *pool
	waiting []*sequence
	running []*sequence
	pulling []*sequence // their KV is on the way from other replicas
	begun   []*sequence // of these, those whose pulls are to be started

	handouts handouts
	fresh    map[cachedHash]bool // Mamba states written in this step: no lookup may resume from them yet
	stats    stats
}

// surroundings are an engine's ways to other replicas.
type surroundings struct {
	id     string // of the engine, in the connector's messages
	side   side
	faults *atomic.Pointer[Faults]
	pulls  sync.WaitGroup
}

func newEngine(rank int, o Options, publish func([]event)) *engine {
	return &engine{
		rank: rank, o: o, publish: publish,
		wake:   make(chan struct{}, 1),
		hasher: newHasher(o),
		pool:   newPool(o.Blocks, o.Version == V032),
		layout: layoutOf(o),
		fresh:  map[cachedHash]bool{},

		handouts: newHandouts(),
		stats:    newStats(o.MaxModelLen),
	}
}

// submit queues sequences, all at once, so that they can share a step.
func (e *engine) submit(seqs ...*sequence) {
	now := time.Now()
	e.mu.Lock()
	for _, s := range seqs {
		s.arrived = now
		s.hashBlocks(e.hasher, e.unit)
		s.tables = e.tables()
		e.waiting = append(e.waiting, s)
	}
	e.mu.Unlock()
	e.poke()
}

// abort takes a sequence out at the next step, as vLLM does for a client that left.
func (e *engine) abort(s *sequence) {
	e.mu.Lock()
	s.aborted = true
	e.mu.Unlock()
	e.poke()
}

func (e *engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// reset empties the prefix cache. It does nothing and returns false while any sequence
// holds blocks. The event is in the next step's batch.
func (e *engine) reset() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pool.reset()
}

// load returns vLLM's score for choosing a rank: a waiting request weighs four running ones.
func (e *engine) load() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return 4*(len(e.waiting)+len(e.pulling)) + len(e.running)
}

// run steps the engine until ctx ends, then ends every sequence.
func (e *engine) run(ctx context.Context) {
	defer e.pulls.Wait()
	defer e.drain()
	for {
		took, any := e.schedule()
		e.startPulls(ctx)
		if !any {
			select {
			case <-e.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if !sleep(ctx, took) {
			return
		}
		e.finishStep()
	}
}

// sleep waits for d and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (e *engine) drain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range slices.Concat(e.running, e.waiting, e.pulling) {
		s.out <- token{index: s.index, gone: true}
	}
	e.running, e.waiting, e.pulling = nil, nil, nil
	for request := range e.handouts.open {
		e.endLocked(request, refusedLate)
	}
}

// schedule chooses the next step and returns its duration; false: there is nothing to do.
func (e *engine) schedule() (took time.Duration, any bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dropAbortedLocked()
	clear(e.fresh)
	budget := e.o.MaxBatchedTokens
	preempted := e.scheduleRunningLocked(&budget)
	if !preempted {
		e.scheduleWaitingLocked(&budget)
	}
	if budget == e.o.MaxBatchedTokens && !preempted {
		return 0, false
	}
	return e.stepTimeLocked(), true
}

// stepTimeLocked returns the duration of a step: it computes its prompt tokens one after
// another, and its decodes share one pass over the weights.
func (e *engine) stepTimeLocked() time.Duration {
	prefill, decodes := 0, 0
	for _, s := range e.running {
		switch {
		case s.scheduled == 0:
		case s.computed+s.scheduled <= s.prompt || s.scheduled > 1:
			prefill += s.scheduled
		default:
			decodes++
		}
	}
	var seconds float64
	if e.o.PrefillRate > 0 {
		seconds += float64(prefill) / e.o.PrefillRate
	}
	if decodes > 0 && e.o.DecodeRate > 0 {
		seconds += 1 / e.o.DecodeRate
	}
	return time.Duration(seconds * float64(time.Second))
}

func (e *engine) dropAbortedLocked() {
	drop := func(s *sequence) bool {
		if !s.aborted {
			return false
		}
		e.freeAll(s)
		e.stats.finished["abort"]++
		s.out <- token{index: s.index, gone: true}
		return true
	}
	e.running = slices.DeleteFunc(e.running, drop)
	e.waiting = slices.DeleteFunc(e.waiting, drop)
}

// scheduleRunningLocked gives each running sequence its next tokens. If blocks run out it
// preempts the newest sequence; it reports whether it preempted any.
func (e *engine) scheduleRunningLocked(budget *int) (preempted bool) {
	for i := 0; i < len(e.running); i++ {
		s := e.running[i]
		s.scheduled = 0
		n := e.chunk(s, 0, min(len(s.tokens)-s.computed, *budget))
		if n <= 0 {
			continue
		}
		for !e.allocateLocked(s, hit{}, n) {
			last := e.running[len(e.running)-1]
			e.preemptLocked(last)
			preempted = true
			if last == s {
				return preempted
			}
		}
		s.scheduled = n
		*budget -= n
	}
	return preempted
}

// preemptLocked puts the newest running sequence back at the head of the queue; its
// computed blocks stay cached until evicted. The sequence that needs room is older, so the
// newest has no tokens in this step yet.
func (e *engine) preemptLocked(s *sequence) {
	e.running = e.running[:len(e.running)-1]
	e.freeAll(s)
	s.computed, s.scheduled = 0, 0
	s.preempted, s.pull = true, nil
	e.stats.preemptions++
	e.waiting = slices.Insert(e.waiting, 0, s)
}

// scheduleWaitingLocked admits waiting sequences in order of arrival while
// there is budget, a place in the batch and room for the whole sequence.
func (e *engine) scheduleWaitingLocked(budget *int) {
	loras := map[int]bool{}
	for _, s := range e.running {
		if s.lora != nil && s.scheduled > 0 {
			loras[s.lora.id] = true
		}
	}
	for i := 0; i < len(e.waiting) && *budget > 0 && len(e.running) < e.o.MaxRunning; {
		s := e.waiting[i]
		if s.lora != nil && !loras[s.lora.id] && len(loras) == e.o.MaxLoRAs {
			i++ // one adapter too many: later sequences may pass this one
			continue
		}
		if s.pull != nil && !s.pull.begun {
			if !e.beginPullLocked(s) {
				return
			}
			e.waiting = slices.Delete(e.waiting, i, i+1)
			continue
		}
		n := e.admitLocked(s, *budget)
		if n == 0 {
			return
		}
		s.scheduled = n
		*budget -= n
		if s.lora != nil {
			loras[s.lora.id] = true
		}
		e.waiting = slices.Delete(e.waiting, i, i+1)
		e.running = append(e.running, s)
	}
}

// admitLocked gives s its first slots of at most budget tokens, and returns their number,
// 0 if it must wait for room.
func (e *engine) admitLocked(s *sequence, budget int) int {
	if s.pull != nil { // it has slots for the whole prompt, with KV in all but the last
		if !e.allocateLocked(s, hit{}, 1) {
			return 0
		}
		return 1
	}
	h := e.hitLocked(s)
	if s.report { // before evictions for s, and again at each attempt to admit it
		e.reportLocked(s, h)
	}
	n := e.chunk(s, h.tokens, min(len(s.tokens)-h.tokens, budget))
	if n == 0 || e.neededIn(s, h, len(s.tokens), len(s.tokens), true) > e.pool.free || !e.allocateLocked(s, h, n) {
		return 0
	}
	e.admittedLocked(s, h.tokens)
	if e.o.Connector != "" && !s.noRead {
		e.stats.external.queries += len(s.tokens) - h.tokens
	}
	return n
}

func (e *engine) admittedLocked(s *sequence, hit int) {
	s.computed = hit
	if !s.preempted && !s.noRead {
		e.stats.queries += len(s.tokens)
		e.stats.hits += hit
	}
	if s.admitted {
		return
	}
	s.admitted, s.hit, s.started = true, hit, time.Now()
	e.stats.queue.observe(s.started.Sub(s.arrived).Seconds())
}

// hitLocked looks s up. The engine always computes the last token, for its logits.
func (e *engine) hitLocked(s *sequence) hit {
	if s.noRead {
		s.junction = 0
		return hit{}
	}
	h := e.lookup(s, len(s.tokens)-1)
	s.junction = h.junction
	if h.tokens == 0 && !h.any() {
		h.blocks = nil
	}
	return h
}

// reportLocked announces the blocks of a hit again, even blocks that the hit does not need.
func (e *engine) reportLocked(s *sequence, h hit) {
	for g := range h.blocks {
		if n := len(h.blocks[g]); n > 0 && h.tokens > 0 {
			ev := e.rangeEvent(s, g, 0, n)
			for i := range n {
				e.announce(&ev, s, e.groups[g], i)
			}
			e.pool.events = append(e.pool.events, ev)
		}
	}
}

// rangeEvent returns the event of the blocks [from, to) of s in group g, without any of
// them yet; announce adds them.
func (e *engine) rangeEvent(s *sequence, g, from, to int) event {
	grp := e.groups[g]
	ev := event{
		kind: blockStored, group: g, blockSize: grp.BlockSize, lora: s.lora, session: s.session,
		tokens: slices.Clone(s.tokens[from*grp.BlockSize : to*grp.BlockSize]),
	}
	if from > 0 {
		ev.parent = e.hashOf(s, grp, from-1)
	}
	return ev
}

// announce adds block i of s to its range's event.
func (e *engine) announce(ev *event, s *sequence, g Group, i int) {
	ev.hashes = append(ev.hashes, e.hashOf(s, g, i))
	ev.extra = append(ev.extra, s.extraKeys(i*g.BlockSize, (i+1)*g.BlockSize))
}

// finishStep books the step's tokens, frees finished sequences and publishes the step's
// events, before it sends any token, as vLLM does.
func (e *engine) finishStep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.bookLocked()
	if events := e.pool.events; len(events) > 0 {
		e.pool.events = nil
		e.publish(events)
	}
	for _, o := range out {
		o.s.out <- o.t
	}
}

// outcome is a token that a step gave a sequence.
type outcome struct {
	s *sequence
	t token
}

// bookLocked books the step's tokens and frees finished sequences.
func (e *engine) bookLocked() (out []outcome) {
	now := time.Now()
	stepTokens := 0
	e.running = slices.DeleteFunc(e.running, func(s *sequence) bool {
		stepTokens += s.scheduled
		s.computed += s.scheduled
		ready := s.scheduled > 0 && s.computed == len(s.tokens)
		s.scheduled = 0
		if !ready {
			return false
		}
		n := len(s.tokens) - s.prompt
		t := token{index: s.index, id: s.next(n), hit: s.hit, last: n+1 == s.maxTokens}
		t.created = max(0, s.prompt/e.o.BlockSize*e.o.BlockSize-s.hit-s.transferred)
		if s.pull != nil && s.pull.cached != nil {
			t.hit = *s.pull.cached
		}
		s.tokens = append(s.tokens, t.id)
		s.hashBlocks(e.hasher, e.unit)
		e.stats.token(s, now, n == 0, t.last)
		out = append(out, outcome{s, t})
		if t.last {
			if s.leg != nil {
				out[len(out)-1].t.params = e.handOutLocked(s)
			}
			e.freeAll(s)
		}
		return t.last
	})
	e.stats.iteration.observe(float64(stepTokens))
	return out
}
