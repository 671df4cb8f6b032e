package simulator

import "slices"

// dense is the scheduler of an engine whose cache is of full attention alone, after vLLM's
// (vllm/v1/core/sched/scheduler.py): first come first served, prompts in chunks, caches that
// grow with the answers, and preemption of the newest sequence where one finds no room.
// TestSchedulerSimulated in test/vllm compares both.
type dense struct {
	hw    *Hardware
	cache *cache
	pool  *pool // instead of the cache's contents, for upper bounds
	block int   // tokens of the trace's blocks
	exact bool  // they are the replica's own: hits are whole blocks

	lower *tier // below the GPU; nil = there is none
	kept  []int32

	waiting []*sequence
	loading []*sequence // admitted, their blocks are being loaded
	running []*sequence
	began   []*Request // in the step under way
}

// hit returns the tokens that matched blocks save: vLLM always computes the last token.
func hit(blocks, input, block int) int { return max(0, min(blocks*block, input-1)) }

func (d *dense) match(blocks []int32) int {
	if d.pool != nil {
		return d.pool.match(blocks)
	}
	return d.cache.match(blocks)
}

// Enqueue implements Scheduler.
func (d *dense) Enqueue(r *Request) { d.waiting = append(d.waiting, &sequence{r: r}) }

// Load implements Scheduler.
func (d *dense) Load() Page {
	return Page{Waiting: len(d.waiting), Running: d.active(), KVUsage: 1 - float64(d.cache.free)/float64(d.cache.pages)}
}

func (d *dense) active() int { return len(d.loading) + len(d.running) }

// Begin implements Scheduler.
func (d *dense) Begin() (b Batch, any bool) {
	budget := d.hw.Budget
	preempted := d.goOn(&b, &budget)
	if !preempted {
		d.admit(&b, &budget)
	}
	b.Running = d.active()
	if any = b.Prompt+b.Answers > 0; preempted && !any { // every sequence was preempted: the next step admits some
		return d.Begin()
	}
	return b, any
}

// goOn gives each running sequence its next tokens. If there is no room for them it preempts
// the newest sequence; it reports whether it preempted any.
func (d *dense) goOn(b *Batch, budget *int) (preempted bool) {
	for i := 0; i < len(d.running) && *budget > 0; i++ {
		s := d.running[i]
		n := min(*budget, s.tokens()-s.computed)
		for !d.grow(s, s.computed+n) {
			last := d.running[len(d.running)-1]
			d.preempt(last)
			if preempted = true; last == s {
				return preempted
			}
		}
		d.schedule(s, n, b, budget)
	}
	return preempted
}

// preempt puts the newest running sequence at the head of the queue. What it has computed
// stays cached until its room is taken.
func (d *dense) preempt(s *sequence) {
	d.running = d.running[:len(d.running)-1]
	d.release(s)
	s.computed, s.ready = 0, 0
	s.r.Preempted++
	d.waiting = slices.Insert(d.waiting, 0, s)
}

func (d *dense) schedule(s *sequence, n int, b *Batch, budget *int) {
	if s.computed >= s.r.Input && n == 1 {
		b.Answers++
		b.Context += float64(s.computed + 1)
	} else {
		b.Prompt += n
		b.Pairs += float64(n) * (float64(s.computed) + float64(n)/2)
	}
	s.computed += n
	s.step = n
	*budget -= n
	d.show(s)
}

// admit lets sequences run while there are tokens, places and room: first those whose blocks
// are loaded, then the waiting in order of arrival.
func (d *dense) admit(b *Batch, budget *int) {
	run := func(s *sequence, n int) {
		d.running = append(d.running, s)
		d.began = append(d.began, s.r)
		d.schedule(s, n, b, budget)
	}
	for *budget > 0 && len(d.loading) > 0 && d.loading[0].ready <= *d.lower.now {
		s := d.loading[0]
		d.loading = d.loading[1:]
		run(s, min(*budget, s.tokens()-s.computed)) // it has room for all
	}
	for *budget > 0 && len(d.waiting) > 0 && d.active() < d.hw.Sequences {
		s := d.waiting[0]
		if !d.start(s) {
			return
		}
		d.waiting = d.waiting[1:]
		if s.ready > 0 {
			d.grow(s, s.tokens())
			d.loading = append(d.loading, s)
			continue
		}
		n := min(*budget, s.tokens()-s.computed)
		d.grow(s, s.computed+n)
		run(s, n)
	}
}

// start gives a waiting sequence what is cached of it; false if there is no room for the rest.
func (d *dense) start(s *sequence) bool {
	blocks, tokens := d.find(s)
	if !d.fits(s, blocks) {
		return false
	}
	d.adopt(s, blocks)
	first := !s.admitted
	s.admitted, s.computed = true, tokens
	switch {
	case first && s.r.moved:
		s.computed = s.r.Input - 1
	case first:
		s.r.Hit = tokens
	}
	if d.lower != nil && !(first && s.r.moved) {
		d.fetch(s, min(blocks, len(s.r.Blocks)), first)
	}
	return true
}

// fetch loads what the tier has behind the first cached blocks.
func (d *dense) fetch(s *sequence, cached int, first bool) {
	held := hit(cached+d.lower.find(s.r.Blocks, cached), s.r.Input, d.block)
	if held <= s.computed {
		return
	}
	s.ready = d.lower.load(held - s.computed)
	if s.computed = held; first {
		s.r.Hit = held
	}
}

// keep copies computed blocks to the tier.
func (d *dense) keep(blocks []int32) {
	for _, b := range blocks {
		if !d.lower.pool.present[b] {
			d.kept = append(d.kept, b)
		}
	}
	d.lower.pool.store(blocks)
}

// End implements Scheduler.
func (d *dense) End() Ended {
	e := Ended{Admitted: d.began}
	d.began = nil
	d.running = slices.DeleteFunc(d.running, func(s *sequence) bool {
		any := s.step > 0
		if s.step = 0; !any || s.computed < s.tokens() {
			return false
		}
		if s.answered++; s.answered == 1 {
			e.First = append(e.First, s.r)
		}
		if s.answered < s.r.Output {
			return false
		}
		d.release(s)
		if d.pool != nil {
			d.pool.store(s.r.Answer)
		}
		e.Done = append(e.Done, s.r)
		return true
	})
	e.Stored, e.Removed = d.cache.publish()
	if d.lower != nil {
		e.Kept, e.Dropped = d.kept, d.lower.pool.evicted
		d.kept, d.lower.pool.evicted = nil, nil
	}
	return e
}

// ahead returns the engine time of the prefill ahead of a new request, for oracles alone.
func (d *dense) ahead() (w float64) {
	for _, s := range d.running {
		if left := s.tokens() - s.computed; left > 1 {
			w += d.hw.Prefill(left, s.computed)
		}
	}
	for _, s := range d.waiting {
		_, held := d.find(s)
		w += d.hw.Prefill(s.tokens()-held, held)
	}
	return w
}

// coming is match with the blocks that requests ahead will have stored, for oracles alone.
func (d *dense) coming(blocks []int32) int {
	most := d.match(blocks)
	for _, list := range [][]*sequence{d.running, d.waiting} {
		for _, s := range list {
			if s.computed >= s.r.Input {
				continue
			}
			i := 0
			for i < len(blocks) && i < len(s.r.Blocks) && blocks[i] == s.r.Blocks[i] {
				i++
			}
			most = max(most, i)
		}
	}
	return most
}
