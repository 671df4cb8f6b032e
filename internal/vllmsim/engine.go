package vllmsim

import (
	"context"
	"slices"
	"sync"
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

	mu      sync.Mutex // guards everything below
	hasher  *hasher
	pool    *pool
	waiting []*sequence
	running []*sequence
	stats   stats
}

func newEngine(rank int, o Options, publish func([]event)) *engine {
	return &engine{
		rank: rank, o: o, publish: publish,
		wake:   make(chan struct{}, 1),
		hasher: newHasher(o),
		pool:   newPool(o.Blocks, o.Version == V032),
		stats:  newStats(o.MaxModelLen),
	}
}

// submit queues sequences, all at once, so that they can share a step.
func (e *engine) submit(seqs ...*sequence) {
	now := time.Now()
	e.mu.Lock()
	for _, s := range seqs {
		s.arrived = now
		s.hashBlocks(e.hasher, e.o.BlockSize)
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

// reset empties the prefix cache. It reports false, and does nothing, while any
// sequence holds blocks. The event travels with the next step's batch.
func (e *engine) reset() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pool.reset()
}

// load is vLLM's score for choosing a rank: a waiting request weighs four running ones.
func (e *engine) load() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return 4*len(e.waiting) + len(e.running)
}

// run steps the engine until ctx ends, then ends every sequence.
func (e *engine) run(ctx context.Context) {
	defer e.drain()
	for {
		took, any := e.schedule()
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
	for _, s := range slices.Concat(e.running, e.waiting) {
		s.out <- token{index: s.index, gone: true}
	}
	e.running, e.waiting = nil, nil
}

// schedule chooses the next step and says how long it takes, and whether there
// is anything to do.
func (e *engine) schedule() (took time.Duration, any bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dropAbortedLocked()
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

// stepTimeLocked: a step computes its prompt tokens one after another; its
// decodes share one pass over the weights.
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
		e.pool.release(s.blocks)
		e.stats.finished["abort"]++
		s.out <- token{index: s.index, gone: true}
		return true
	}
	e.running = slices.DeleteFunc(e.running, drop)
	e.waiting = slices.DeleteFunc(e.waiting, drop)
}

// scheduleRunningLocked gives each running sequence its next tokens. When
// blocks run out the newest is preempted; it reports whether any was.
func (e *engine) scheduleRunningLocked(budget *int) (preempted bool) {
	for i := 0; i < len(e.running); i++ {
		s := e.running[i]
		s.scheduled = 0
		n := min(len(s.tokens)-s.computed, *budget)
		if n <= 0 {
			continue
		}
		for !e.allocateLocked(s, nil, n) {
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

// preemptLocked puts the newest running sequence back at the head of the queue;
// what it computed stays cached until evicted. The victim comes after the one that
// needs room, so it has nothing scheduled in this step yet.
func (e *engine) preemptLocked(s *sequence) {
	e.running = e.running[:len(e.running)-1]
	e.pool.release(s.blocks)
	s.blocks, s.held, s.computed, s.scheduled = nil, 0, 0, 0
	s.preempted = true
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
			i++ // it would be one adapter too many: later ones may pass it
			continue
		}
		hits := e.hitsLocked(s)
		if s.report && len(hits) > 0 { // before anything is evicted for s, and again each time it is tried
			e.pool.events = append(e.pool.events, e.storedEvent(s, 0, len(hits)))
		}
		hit := len(hits) * e.o.BlockSize
		n := min(len(s.tokens)-hit, *budget)
		if e.neededLocked(s, hits, len(s.tokens)) > e.pool.free || !e.allocateLocked(s, hits, n) {
			return
		}
		e.admittedLocked(s, hit)
		s.scheduled = n
		*budget -= n
		if s.lora != nil {
			loras[s.lora.id] = true
		}
		e.waiting = slices.Delete(e.waiting, i, i+1)
		e.running = append(e.running, s)
	}
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

// hitsLocked is the longest cached prefix of s. The last token is always
// computed, for its logits.
func (e *engine) hitsLocked(s *sequence) (hits []*block) {
	if s.noRead {
		return nil
	}
	for i := range min(len(s.hashes), (len(s.tokens)-1)/e.o.BlockSize) {
		b := e.pool.cached(s.hashes[i])
		if b == nil {
			break
		}
		hits = append(hits, b)
	}
	return hits
}

// neededLocked is how many free blocks it takes for s to have slots for its
// first total tokens: new ones, and hits that are now free.
func (e *engine) neededLocked(s *sequence, hits []*block, total int) int {
	need := max(0, (total+e.o.BlockSize-1)/e.o.BlockSize-len(s.blocks)-len(hits))
	for _, b := range hits {
		if b.refs == 0 {
			need++
		}
	}
	return need
}

// allocateLocked gives s slots for n more tokens after what is computed or hit,
// and caches the blocks those fill. It changes nothing if blocks are short.
func (e *engine) allocateLocked(s *sequence, hits []*block, n int) bool {
	total := s.computed + len(hits)*e.o.BlockSize + n
	if e.neededLocked(s, hits, total) > e.pool.free {
		return false
	}
	e.pool.touch(hits)
	s.blocks = append(s.blocks, hits...)
	s.held += len(hits)
	if more := (total+e.o.BlockSize-1)/e.o.BlockSize - len(s.blocks); more > 0 {
		s.blocks = e.pool.take(s.blocks, more)
	}
	e.holdLocked(s, min(total, len(s.tokens))/e.o.BlockSize)
	return true
}

// holdLocked caches the blocks of s up to full and says so in one event.
func (e *engine) holdLocked(s *sequence, full int) {
	if s.held >= full {
		return
	}
	e.pool.events = append(e.pool.events, e.storedEvent(s, s.held, full))
	for i := s.held; i < full; i++ {
		e.pool.hold(s.blocks[i], s.hashes[i])
	}
	s.held = full
}

// storedEvent announces the blocks [from, to) of s.
func (e *engine) storedEvent(s *sequence, from, to int) event {
	ev := event{
		kind: blockStored, blockSize: e.o.BlockSize, lora: s.lora, session: s.session,
		hashes: slices.Clone(s.hashes[from:to]),
		tokens: slices.Clone(s.tokens[from*e.o.BlockSize : to*e.o.BlockSize]),
		extra:  slices.Clone(s.extra[from:to]),
	}
	if from > 0 {
		ev.parent = s.hashes[from-1]
	}
	return ev
}

// finishStep books the step's tokens, frees what is done and publishes the
// step's events, before any token goes out, as vLLM does.
func (e *engine) finishStep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	type outcome struct {
		s *sequence
		t token
	}
	var out []outcome
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
		t.created = max(0, s.prompt/e.o.BlockSize*e.o.BlockSize-s.hit)
		s.tokens = append(s.tokens, t.id)
		s.hashBlocks(e.hasher, e.o.BlockSize)
		e.stats.token(s, now, n == 0, t.last)
		out = append(out, outcome{s, t})
		if t.last {
			e.pool.release(s.blocks)
		}
		return t.last
	})
	e.stats.iteration.observe(float64(stepTokens))
	if events := e.pool.events; len(events) > 0 {
		e.pool.events = nil
		e.publish(events)
	}
	for _, o := range out {
		o.s.out <- o.t
	}
}
