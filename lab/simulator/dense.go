package simulator

import "container/heap"

// dense is the scheduler of an engine whose cache is of full attention alone.
type dense struct {
	hw    *Hardware
	cache *cache
	pool  *pool // instead of the cache's contents, for upper bounds

	lower *tier // below the GPU; nil = there is none
	kept  []int32

	waiting    []*sequence
	loading    []*sequence // admitted, their blocks are being loaded
	prefilling []*sequence
	decoding   decodes
	context    float64 // tokens of the decoding
	step       int64
}

// sequence is a request in an engine.
type sequence struct {
	r        *Request
	computed int     // tokens of the prompt, cached ones included
	stored   int     // blocks visible to others
	last     int64   // step that ends it
	ready    float64 // when its blocks are loaded
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
	p := Page{Waiting: len(d.waiting), Running: d.running(), KVUsage: float64(d.cache.pinned) / float64(d.cache.capacity)}
	if d.lower != nil {
		p.LoadSeconds, p.Loaded = d.lower.seconds, d.lower.loaded
	}
	return p
}

func (d *dense) running() int { return len(d.loading) + len(d.prefilling) + len(d.decoding) }

// admit reserves a sequence's KV cache; false if there is no room.
func (d *dense) admit(s *sequence) bool {
	c := d.cache
	var cached int
	if d.pool != nil {
		need := s.r.Input + s.r.Output
		if c.pinned+need > c.capacity && c.pinned > 0 {
			return false
		}
		cached = d.pool.match(s.r.Blocks)
		d.pool.touch(s.r.Blocks[:cached])
		c.pinned += need
	} else {
		var ok bool
		if cached, ok = c.reserve(s.r); !ok {
			return false
		}
	}
	s.stored, s.computed = cached, hit(cached, s.r.Input, c.block)
	if s.r.moved {
		s.computed = s.r.Input - 1
		return true
	}
	s.r.Hit = s.computed
	if d.lower != nil {
		d.fetch(s, cached)
	}
	return true
}

// fetch loads what the tier has behind the first cached blocks.
func (d *dense) fetch(s *sequence, cached int) {
	n := d.lower.find(s.r.Blocks, cached)
	held := hit(cached+n, s.r.Input, d.cache.block)
	if held <= s.computed {
		return
	}
	s.ready = d.lower.load(held - s.computed)
	s.computed, s.r.Hit = held, held
}

func (d *dense) release(s *sequence) {
	if d.pool != nil {
		d.cache.pinned -= s.r.Input + s.r.Output
		d.pool.store(s.r.Answer)
		return
	}
	d.cache.release(s.r)
}

// Begin implements Scheduler: decodes first, then prefills in order of arrival,
// in chunks.
func (d *dense) Begin() (b Batch, any bool) {
	b.Answers = len(d.decoding)
	budget := max(0, d.hw.Budget-b.Answers)
	chunk := func(s *sequence) {
		n := min(budget, s.r.Input-s.computed)
		b.Pairs += float64(n) * (float64(s.computed) + float64(n)/2)
		s.computed += n
		budget -= n
		b.Prompt += n
		d.show(s)
	}
	for _, s := range d.prefilling {
		if budget > 0 {
			chunk(s)
		}
	}
	for budget > 0 && len(d.loading) > 0 && d.loading[0].ready <= *d.lower.now {
		s := d.loading[0]
		d.loading = d.loading[1:]
		d.prefilling = append(d.prefilling, s)
		chunk(s)
	}
	for budget > 0 && len(d.waiting) > 0 && d.running() < d.hw.Sequences && d.admit(d.waiting[0]) {
		s := d.waiting[0]
		d.waiting = d.waiting[1:]
		if s.ready > 0 {
			d.loading = append(d.loading, s)
			continue
		}
		d.prefilling = append(d.prefilling, s)
		chunk(s)
	}
	b.Context, b.Running = d.context, d.running()
	return b, b.Prompt+b.Answers > 0
}

// show makes the blocks that a sequence has computed visible.
func (d *dense) show(s *sequence) {
	full := s.computed / d.cache.block
	if s.computed >= s.r.Input {
		full = len(s.r.Blocks)
	}
	if full <= s.stored {
		return
	}
	if d.pool != nil {
		d.pool.store(s.r.Blocks[s.stored:full])
	} else {
		d.cache.store(s.r.Blocks[s.stored:full])
	}
	if d.lower != nil {
		d.keep(s.r.Blocks[s.stored:full])
	}
	s.stored = full
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
	var e Ended
	finish := func(s *sequence) {
		d.release(s)
		e.Done = append(e.Done, s.r)
	}
	d.step++
	d.context += float64(len(d.decoding))
	for len(d.decoding) > 0 && d.decoding[0].last <= d.step {
		s := heap.Pop(&d.decoding).(*sequence)
		d.context -= float64(s.r.Input + s.r.Output)
		finish(s)
	}
	left := d.prefilling[:0]
	for _, s := range d.prefilling {
		if s.computed < s.r.Input {
			left = append(left, s)
			continue
		}
		e.First = append(e.First, s.r)
		if s.r.Output <= 1 {
			finish(s)
			continue
		}
		s.last = d.step + int64(s.r.Output) - 1
		heap.Push(&d.decoding, s)
		d.context += float64(s.r.Input + 1)
	}
	d.prefilling = left
	if len(d.decoding) == 0 {
		d.context = 0
	}
	e.Stored, e.Removed = d.cache.stored, d.cache.removed
	d.cache.stored, d.cache.removed = nil, nil
	if d.lower != nil {
		e.Kept, e.Dropped = d.kept, d.lower.pool.evicted
		d.kept, d.lower.pool.evicted = nil, nil
	}
	return e
}

// ahead returns the engine time of the prefill ahead of a new request, for oracles alone.
func (d *dense) ahead() (w float64) {
	for _, s := range d.prefilling {
		w += d.hw.Prefill(s.r.Input-s.computed, s.computed)
	}
	for _, s := range d.waiting {
		h := hit(d.match(s.r.Blocks), s.r.Input, d.cache.block)
		w += d.hw.Prefill(s.r.Input-h, h)
	}
	return w
}

// coming is match with the blocks that requests ahead will have stored, for oracles alone.
func (d *dense) coming(blocks []int32) int {
	most := d.match(blocks)
	for _, list := range [][]*sequence{d.prefilling, d.waiting} {
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
