package simulator

// sequence is a request in an engine.
type sequence struct {
	r        *Request
	computed int // tokens with KV, with the tokens of the step under way
	answered int // tokens of the answer
	step     int // tokens of the step under way

	nodes []int32 // in the cache, by block
	pages int     // of them
	shown int     // nodes whose blocks others see
	own   []int32 // ids of the full blocks behind the trace's blocks of the prompt

	admitted bool    // at least once
	ready    float64 // when its blocks are loaded
}

// tokens returns how many there are so far.
func (s *sequence) tokens() int { return s.r.Input + s.answered }

// end returns the tokens up to the end of block i. The last block of a prompt may be partial;
// the answer's blocks begin behind it.
func (s *sequence) end(i, block int) int {
	n := len(s.r.Blocks)
	if i < n {
		return min((i+1)*block, s.r.Input)
	}
	return min(n*block, s.r.Input) + (i-n+1)*block
}

// id returns the id of block i; -1: it was never full.
func (s *sequence) id(i int) int32 {
	for _, ids := range [...][]int32{s.r.Blocks, s.r.Answer, s.own} {
		if i < len(ids) {
			return ids[i]
		}
		i -= len(ids)
	}
	return -1
}

// find returns the cached blocks of a sequence that holds none, and its tokens that they save.
// The last token is always computed.
func (d *dense) find(s *sequence) (blocks, tokens int) {
	last := s.tokens() - 1
	if d.pool != nil {
		blocks = d.pool.match(s.r.Blocks)
		return blocks, hit(blocks, s.r.Input, d.block)
	}
	for {
		id := s.id(blocks)
		if id < 0 || !d.cache.has(id) {
			break
		}
		end := s.end(blocks, d.block)
		if d.exact && end > last {
			break
		}
		blocks, tokens = blocks+1, min(end, last)
	}
	return blocks, tokens
}

// fits reports whether there is room for all of a sequence's tokens behind its first blocks,
// which are cached: without that vLLM admits none.
func (d *dense) fits(s *sequence, blocks int) bool {
	c := d.cache
	need := c.of(s.tokens())
	if d.pool != nil {
		return need <= c.free
	}
	for i := range blocks {
		if n := &c.nodes[c.at[s.id(i)]]; n.refs > 0 {
			need -= int(n.pages)
		}
	}
	return need <= c.free
}

// adopt makes cached blocks a sequence's first.
func (d *dense) adopt(s *sequence, blocks int) {
	if d.pool != nil {
		d.pool.touch(s.r.Blocks[:blocks])
		s.shown = blocks
		return
	}
	for i := range blocks {
		s.nodes = append(s.nodes, d.cache.hold(s.id(i)))
		s.pages = d.cache.of(s.end(i, d.block))
	}
	s.shown = blocks
}

// grow gives a sequence room for so many tokens; false: there is none.
func (d *dense) grow(s *sequence, tokens int) bool {
	c, want := d.cache, d.cache.of(tokens)
	if want-s.pages > c.free {
		return false
	}
	if want > s.pages {
		c.claim(want - s.pages)
	}
	for s.pages < want {
		i := len(s.nodes) - 1
		if i < 0 || s.pages >= c.of(s.end(i, d.block)) {
			s.nodes = append(s.nodes, c.take())
			i++
		}
		more := min(want, c.of(s.end(i, d.block))) - s.pages
		c.nodes[s.nodes[i]].pages += int32(more)
		s.pages += more
	}
	return true
}

// show makes the blocks that a sequence has filled visible, as vLLM does when it schedules
// their tokens.
func (d *dense) show(s *sequence) {
	from := s.shown
	for s.shown < len(s.nodes) && s.end(s.shown, d.block) <= s.computed {
		id := s.id(s.shown)
		if id < 0 && d.pool == nil {
			id = d.cache.private()
			s.own = append(s.own, id)
		}
		if d.pool == nil {
			d.cache.store(s.nodes[s.shown], id)
		}
		s.shown++
	}
	named := s.r.Blocks[min(from, len(s.r.Blocks)):min(s.shown, len(s.r.Blocks))]
	if d.pool != nil {
		d.pool.store(named)
	}
	if d.lower != nil {
		d.keep(named)
	}
}

// release gives back what a sequence holds, its last block first, so that the cache takes
// tails before heads.
func (d *dense) release(s *sequence) {
	c := d.cache
	for i := len(s.nodes) - 1; i >= 0; i-- {
		start := 0
		if i > 0 {
			start = c.of(s.end(i-1, d.block))
		}
		c.drop(s.nodes[i], max(0, s.computed/c.page-start))
	}
	s.nodes, s.pages, s.shown = s.nodes[:0], 0, 0
}
