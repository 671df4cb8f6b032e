package vllmsim

// table is the blocks of one sequence in one group, in the order of its tokens; nil is
// vLLM's null block, which holds no KV.
type table struct {
	blocks []*block
	known  int // leading blocks that keepLocked has judged: it caches them, or they are not worth it
	begun  bool
	// Mamba groups use these: the block of the state before the current one, the number
	// of blocks already given back, and whether the table has the draft's blocks.
	state   int
	retired int
	drafted bool
}

// needed returns the number of free blocks that s takes in group g for its first total
// tokens: new blocks, and hits that are now free. admission limits it to the blocks that
// a sequence holds at once, in a group that gives blocks back.
func (e *engine) needed(s *sequence, g int, h hit, total int, admission bool) int {
	t, grp := &s.tables[g], e.groups[g]
	var hits []*block
	if h.blocks != nil {
		hits = h.blocks[g]
	}
	if grp.Kind == Mamba {
		return e.neededStates(t, grp, hits, total)
	}
	want := blocksOf(total, grp.BlockSize)
	if most := e.most(grp); admission && most > 0 {
		want = min(want, most)
	}
	if t.begun {
		return max(0, want-len(t.blocks))
	}
	skipped := grp.skipped(s.computed+h.tokens) / grp.BlockSize
	need := max(0, want-max(skipped, len(hits)+len(t.blocks)))
	for i := max(0, skipped-len(t.blocks)); i < len(hits); i++ {
		if hits[i] != nil && hits[i].refs == 0 {
			need++
		}
	}
	return need
}

// most returns the number of blocks that a sequence holds at once in a group that gives
// earlier blocks back; 0: no limit.
func (e *engine) most(g Group) int {
	switch {
	case g.windowed():
		return blocksOf(min(g.Window-1+e.o.MaxBatchedTokens, e.o.MaxModelLen), g.BlockSize) + 1
	case g.Kind == ChunkedAttention:
		return blocksOf(min(g.Chunk+e.o.MaxBatchedTokens, e.o.MaxModelLen), g.BlockSize)
	}
	return 0
}

// neededStates is needed for Mamba groups: a step writes one state, whatever its length.
func (e *engine) neededStates(t *table, g Group, hits []*block, total int) int {
	if n := len(hits); n > 0 && e.fresh[cachedHash{hits[n-1].group, hits[n-1].hash}] {
		return len(e.pool.all) + 2 // this very step still computes its state
	}
	need := blocksOf(total, g.BlockSize) + e.o.Draft - len(hits) - len(t.blocks)
	most := 1
	if !t.drafted {
		most += e.o.Draft
	}
	need = max(0, min(need, most))
	for _, b := range hits {
		if b != nil && b.refs == 0 {
			need++
		}
	}
	return need
}

func blocksOf(tokens, size int) int { return (tokens + size - 1) / size }

// neededIn adds up needed over all groups; Mamba groups have no slots for drafts.
func (e *engine) neededIn(s *sequence, h hit, total, model int, admission bool) (n int) {
	for g := range e.groups {
		if e.groups[g].Kind == Mamba {
			n += e.needed(s, g, h, model, admission)
		} else {
			n += e.needed(s, g, h, total, admission)
		}
	}
	return n
}

// allocateLocked gives s slots for n more tokens after its computed and hit tokens, and
// caches the blocks that they fill. It takes nothing if blocks are short.
func (e *engine) allocateLocked(s *sequence, h hit, n int) bool {
	reach := min(s.computed+h.tokens+n, len(s.tokens))
	if !e.takeLocked(s, h, n) {
		return false
	}
	e.keepLocked(s, reach)
	return true
}

// takeLocked is allocateLocked for tokens whose KV is not there yet: it caches nothing.
func (e *engine) takeLocked(s *sequence, h hit, n int) bool {
	computed := s.computed + h.tokens
	model := computed + n
	total := min(model+e.o.Draft, e.o.MaxModelLen)
	for g := range e.groups {
		e.skip(&s.tables[g], e.groups[g], computed)
	}
	if e.neededIn(s, h, total, model, false) > e.pool.free {
		return false
	}
	for g := range h.blocks {
		e.adopt(&s.tables[g], e.groups[g], h, g)
	}
	for g := range e.groups {
		if t := &s.tables[g]; e.groups[g].Kind == Mamba {
			e.takeState(t, e.groups[g], model)
		} else if more := blocksOf(total, e.groups[g].BlockSize) - len(t.blocks); more > 0 {
			t.blocks = e.pool.take(t.blocks, more)
		}
	}
	return true
}

// adopt makes the blocks of a hit the first of t.
func (e *engine) adopt(t *table, grp Group, h hit, g int) {
	hits := h.blocks[g]
	for i := range min(grp.skipped(h.tokens)/grp.BlockSize, len(hits)) {
		hits[i] = nil
	}
	e.pool.touch(hits)
	t.blocks = append(t.blocks, hits...)
	t.known, t.begun = len(t.blocks), true
}

// takeState adds the block for the state that the next step writes, in a Mamba group.
func (e *engine) takeState(t *table, g Group, total int) {
	want, had := blocksOf(total, g.BlockSize)+e.o.Draft, len(t.blocks)
	if want > had {
		switch {
		case t.drafted:
			t.state = had - 1 - e.o.Draft
		case had > 0:
			t.state = had - 1
		}
		last := want - e.o.Draft - 1
		for len(t.blocks) < last {
			t.blocks = append(t.blocks, nil)
		}
		if t.drafted { // the draft's blocks move along behind the state
			for i := had - e.o.Draft; i < min(had, last); i++ {
				t.blocks = append(t.blocks, t.blocks[i])
				t.blocks[i] = nil
			}
		}
		t.blocks = e.pool.take(t.blocks, max(0, want-len(t.blocks)))
	}
	t.drafted = true
}

// skip gives back the blocks that no token from computed on attends to.
func (e *engine) skip(t *table, g Group, computed int) {
	end := min(g.skipped(computed)/g.BlockSize, len(t.blocks))
	var freed []*block
	for i := end - 1; i >= t.retired; i-- {
		if t.blocks[i] == nil {
			if g.Kind != Mamba {
				break
			}
			continue
		}
		freed = append(freed, t.blocks[i])
		t.blocks[i] = nil
	}
	e.pool.drop(freed)
	if g.Kind != Mamba {
		return
	}
	t.retired = max(t.retired, end)
	if t.state >= 0 && t.state < blocksOf(computed, g.BlockSize)-1 && t.blocks[t.state] != nil {
		e.pool.drop(t.blocks[t.state : t.state+1])
		t.blocks[t.state] = nil
	}
}

// keepLocked caches the blocks that the first n tokens of s fill, as far as a later
// request could resume there, and publishes them in one event per group.
func (e *engine) keepLocked(s *sequence, n int) {
	for g := range e.groups {
		grp, t := e.groups[g], &s.tables[g]
		reach := e.cacheable(n, g)
		if grp.Kind == Mamba {
			e.refresh(s, g, reach)
		}
		full := reach / grp.BlockSize
		if t.known >= full {
			continue
		}
		worth := e.worth(s, g, t.known, full)
		ev := e.rangeEvent(s, g, t.known, full)
		for i := t.known; i < full; i++ {
			if b := t.blocks[i]; b != nil && (worth == nil || worth[i-t.known]) {
				d := e.hashOf(s, grp, i)
				e.pool.hold(b, g, d)
				e.announce(&ev, s, grp, i)
				if grp.Kind == Mamba {
					e.fresh[cachedHash{g, d}] = true
				}
			}
		}
		e.pool.events = append(e.pool.events, ev)
		t.known, t.begun = full, true
	}
}

// refresh counts the state at the end of the prompt as written in this step, while reach
// is that end.
func (e *engine) refresh(s *sequence, g, reach int) {
	size := e.groups[g].BlockSize
	last := (s.prompt - 1) / size * size
	if e.eagle {
		last = s.prompt/size*size - size
	}
	if i := reach/size - 1; reach == last && i >= 0 && i < len(s.tables[g].blocks) && s.tables[g].blocks[i] != nil {
		e.fresh[cachedHash{g, e.hashOf(s, e.groups[g], i)}] = true
	}
}

// cacheable returns how many of n tokens a hit could reach in group g. EAGLE matches one
// more block and drops it.
func (e *engine) cacheable(n, g int) int {
	if len(e.groups) == 1 {
		return n
	}
	reach := n / e.align * e.align
	if e.drops[g] && reach > 0 {
		return min(n, reach+e.groups[g].BlockSize)
	}
	return reach
}

// worth states from which of the blocks [from, to) of s in group g a later request could
// resume under the replica's retention; nil: from all of them.
func (e *engine) worth(s *sequence, g, from, to int) []bool {
	grp := e.groups[g]
	switch {
	case grp.windowed():
		return e.worthWindow(s, grp, e.drops[g], from, to)
	case grp.Kind == Mamba && e.o.Retention != Dense:
		return e.worthState(s, grp, from, to)
	}
	return nil
}

func (e *engine) worthWindow(s *sequence, g Group, drop bool, from, to int) []bool {
	need, shift := blocksOf(g.Window-1, g.BlockSize), 0
	if drop {
		need, shift = need+1, 1
	}
	segment := e.o.Retention
	if segment == Dense {
		segment = e.align
	}
	per := segment / g.BlockSize
	if segment > 0 && need >= per {
		return nil
	}
	worth := make([]bool, to-from)
	for i := from; segment > 0 && i < to; i++ {
		worth[i-from] = i >= shift && (i-shift)%per >= per-need
	}
	if e.o.Retention == Dense {
		return worth
	}
	for _, at := range e.resumable(s) {
		end := at/e.align*e.align/g.BlockSize + shift
		for i := max(from, end-need); i < min(to, end); i++ {
			worth[i-from] = true
		}
	}
	return worth
}

func (e *engine) worthState(s *sequence, g Group, from, to int) []bool {
	per := e.o.Retention / g.BlockSize
	if per == 1 {
		return nil
	}
	worth := make([]bool, to-from)
	for i := from; per > 0 && i < to; i++ {
		worth[i-from] = (i+1)%per == 0
	}
	for _, at := range e.resumable(s) {
		if i := at/e.align*e.align/g.BlockSize - 1; from <= i && i < to {
			worth[i-from] = true
		}
	}
	return worth
}

// resumable returns the token positions from which later requests resume that repeat or
// extend the prompt of s, or that branch off at its junction.
func (e *engine) resumable(s *sequence) []int {
	at := []int{s.prompt - 1}
	if e.eagle {
		size := e.align
		at = []int{max(0, (s.prompt-1)/size*size-size), max(0, s.prompt/size*size-size)}
	}
	if s.junction > 0 {
		at = append(at, s.junction)
	}
	return at
}

// freeAll gives back all blocks of s, group by group.
func (e *engine) freeAll(s *sequence) {
	for g := range s.tables {
		e.pool.release(s.tables[g].blocks)
	}
	s.tables = e.tables()
}

func (e *engine) tables() []table {
	t := make([]table, len(e.groups))
	for i := range t {
		t[i].state = -1
	}
	return t
}

// chunk returns how many of n tokens s may compute in one step. A step writes a Mamba
// state at its end, so it ends where a later lookup searches for a state.
func (e *engine) chunk(s *sequence, hit, n int) int {
	start, size := s.computed+hit, e.align
	promptEnd := max(s.prompt, len(s.tokens)-1)
	if !e.mamba || start >= promptEnd {
		return n
	}
	last := (len(s.tokens) - 1) / size * size
	if e.eagle {
		last = len(s.tokens)/size*size - size
	}
	end := start + n
	if end < promptEnd {
		if down := end / size * size; down > start || size <= e.o.MaxBatchedTokens {
			end = down
		}
	}
	stop := end
	for _, at := range [3]int{e.nextBoundary(start), last, e.junctionStop(s, start, end)} {
		if start < at && at < stop {
			stop = at
		}
	}
	return max(0, stop-start)
}

func (e *engine) nextBoundary(start int) int {
	if start%e.align == 0 {
		return 0
	}
	return (start/e.align + 1) * e.align
}

func (e *engine) junctionStop(s *sequence, start, end int) int {
	if s.junction <= start || s.junction >= end {
		return 0
	}
	return start + (s.junction-start)/e.align*e.align
}
