package simulator

import "container/heap"

// engine is one replica.
type engine struct {
	hw        *Hardware
	slow      float64 // factor on the time of its steps
	cache     *cache
	pool      *pool         // instead of the cache's contents, for upper bounds
	scheduler Scheduler     // instead of both, and of the batches
	copies    map[int32]int // of full attention's blocks, in its cache
	changes   []Change      // what its last batch came to
	first     []*Request
	done      []*Request

	waiting    []*sequence
	prefilling []*sequence
	decoding   decodes
	context    float64 // tokens of the decoding
	step       int64
	stepEnd    float64
	busy       bool
	computed   int64   // tokens prefilled so far
	busyTime   float64 // s
}

// sequence is a request in an engine.
type sequence struct {
	r        *Request
	computed int   // tokens of the prompt, cached ones included
	stored   int   // blocks visible to others
	last     int64 // step that ends it
}

type decodes []*sequence

func (d decodes) Len() int           { return len(d) }
func (d decodes) Less(i, j int) bool { return d[i].last < d[j].last }
func (d decodes) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *decodes) Push(x any)        { *d = append(*d, x.(*sequence)) }
func (d *decodes) Pop() any {
	old := *d
	x := old[len(old)-1]
	*d = old[:len(old)-1]
	return x
}

// hit is the tokens that matched blocks save: the last one is always computed.
func hit(blocks, input, block int) int { return max(0, min(blocks*block, input-1)) }

func (e *engine) match(blocks []int32) int {
	if e.scheduler != nil {
		panic("simulator: the caches of this engine cannot be looked into")
	}
	if e.pool != nil {
		return e.pool.match(blocks)
	}
	return e.cache.match(blocks)
}

func (e *engine) enqueue(r *Request) {
	if e.scheduler != nil {
		e.scheduler.Enqueue(r)
		return
	}
	e.waiting = append(e.waiting, &sequence{r: r})
}

// page is what the engine's metrics say.
func (e *engine) page() Page {
	if e.scheduler != nil {
		return e.scheduler.Load()
	}
	return Page{Waiting: len(e.waiting), Running: e.running(), KVUsage: float64(e.cache.pinned) / float64(e.cache.capacity)}
}

func (e *engine) running() int { return len(e.prefilling) + len(e.decoding) }

// admit reserves a sequence's KV cache, false when there is no room.
func (e *engine) admit(s *sequence) bool {
	c := e.cache
	var cached int
	if e.pool != nil {
		need := s.r.Input + s.r.Output
		if c.pinned+need > c.capacity && c.pinned > 0 {
			return false
		}
		cached = e.pool.match(s.r.Blocks)
		e.pool.touch(s.r.Blocks[:cached])
		c.pinned += need
	} else {
		var ok bool
		if cached, ok = c.reserve(s.r); !ok {
			return false
		}
	}
	s.stored, s.computed = cached, hit(cached, s.r.Input, c.block)
	s.r.Hit = s.computed
	return true
}

func (e *engine) release(s *sequence) {
	if e.pool != nil {
		e.cache.pinned -= s.r.Input + s.r.Output
		return
	}
	e.cache.release(s.r)
}

// begin forms a batch at now: decodes first, then prefills in order of arrival,
// in chunks. It does nothing while there is nothing to do.
func (e *engine) begin(now float64) {
	if e.scheduler != nil {
		e.beginScheduled(now)
		return
	}
	hw := e.hw
	budget := max(0, hw.Budget-len(e.decoding))
	tokens, attention := len(e.decoding), 0.0
	chunk := func(s *sequence) {
		n := min(budget, s.r.Input-s.computed)
		attention += hw.PrefillPair * float64(n) * (float64(s.computed) + float64(n)/2)
		s.computed += n
		budget -= n
		tokens += n
		e.computed += int64(n)
		e.show(s)
	}
	for _, s := range e.prefilling {
		if budget > 0 {
			chunk(s)
		}
	}
	for budget > 0 && len(e.waiting) > 0 && e.running() < hw.Sequences && e.admit(e.waiting[0]) {
		s := e.waiting[0]
		e.waiting = e.waiting[1:]
		e.prefilling = append(e.prefilling, s)
		chunk(s)
	}
	if e.busy = tokens > 0; !e.busy {
		return
	}
	e.took(now, hw.Step+max(hw.Weights, hw.PrefillToken*float64(tokens))+attention+hw.DecodeToken*e.context+hw.Sequence*float64(e.running()))
}

// took has the batch that begins now take so many seconds on a replica that is not slow.
func (e *engine) took(now, seconds float64) {
	seconds *= e.slow
	e.busyTime += seconds
	e.stepEnd = now + seconds
}

// show makes the blocks that a sequence has computed visible.
func (e *engine) show(s *sequence) {
	full := s.computed / e.cache.block
	if s.computed >= s.r.Input {
		full = len(s.r.Blocks)
	}
	if full <= s.stored {
		return
	}
	if e.pool != nil {
		e.pool.store(s.r.Blocks[s.stored:full])
	} else {
		e.cache.store(s.r.Blocks[s.stored:full])
	}
	s.stored = full
}

// end completes the batch.
func (e *engine) end(now float64, first, done func(*Request)) {
	for _, r := range e.first {
		r.First = now
		first(r)
	}
	for _, r := range e.done {
		r.Done = now
		done(r)
	}
	if e.scheduler != nil {
		return
	}
	e.step++
	e.context += float64(len(e.decoding))
	for len(e.decoding) > 0 && e.decoding[0].last <= e.step {
		s := heap.Pop(&e.decoding).(*sequence)
		e.context -= float64(s.r.Input + s.r.Output)
		e.finish(s, now, done)
	}
	left := e.prefilling[:0]
	for _, s := range e.prefilling {
		if s.computed < s.r.Input {
			left = append(left, s)
			continue
		}
		s.r.First = now
		first(s.r)
		if s.r.Output <= 1 {
			e.finish(s, now, done)
			continue
		}
		s.last = e.step + int64(s.r.Output) - 1
		heap.Push(&e.decoding, s)
		e.context += float64(s.r.Input + 1)
	}
	e.prefilling = left
	if len(e.decoding) == 0 {
		e.context = 0
	}
}

func (e *engine) finish(s *sequence, now float64, done func(*Request)) {
	s.r.Done = now
	e.release(s)
	done(s.r)
}

// wait is the prefill ahead of a newcomer, as only an oracle knows it.
func (e *engine) wait(now float64) float64 {
	w := 0.0
	if e.busy {
		w = e.stepEnd - now
	}
	for _, s := range e.prefilling {
		w += e.slow * e.hw.Prefill(s.r.Input-s.computed, s.computed)
	}
	for _, s := range e.waiting {
		h := hit(e.match(s.r.Blocks), s.r.Input, e.cache.block)
		w += e.slow * e.hw.Prefill(s.r.Input-h, h)
	}
	return w
}

// coming is match with the blocks that requests ahead will have stored, as only
// an oracle knows it.
func (e *engine) coming(blocks []int32) int {
	most := e.match(blocks)
	for _, list := range [][]*sequence{e.prefilling, e.waiting} {
		for _, s := range list {
			i := 0
			for i < len(blocks) && i < len(s.r.Blocks) && blocks[i] == s.r.Blocks[i] {
				i++
			}
			most = max(most, i)
		}
	}
	return most
}
