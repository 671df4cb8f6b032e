package vllmsim

// hit is the result of a lookup: the blocks of each group from the start, nil for blocks
// that the hit does not need, and their number of tokens.
type hit struct {
	blocks [][]*block
	tokens int
	// junction is the end of a prefix that some groups still have and others lack: its
	// state is worth keeping when the engine computes it again. 0: none.
	junction int
}

// any reports whether any group gives blocks, or places without any.
func (h hit) any() bool {
	for _, blocks := range h.blocks {
		if len(blocks) > 0 {
			return true
		}
	}
	return false
}

// lookup finds the longest prefix of at most limit tokens from which every group can
// resume (vllm/v1/core/kv_cache_coordinator.py).
func (e *engine) lookup(s *sequence, limit int) hit {
	h := hit{blocks: make([][]*block, len(e.groups))}
	if len(e.groups) == 1 {
		only := e.specs[0]
		h.tokens = e.longest(s, &only, limit, only.drop, h.blocks)
		return h
	}
	best, found := 0, make([]int, len(e.specs))
	verified := make([]bool, len(e.specs))
	for i := range found {
		found[i] = -1
	}
	twoKinds := len(e.specs) == 2 && e.specs[0].full()
	for h.tokens = limit; ; {
		at := h.tokens
		for i := range e.specs {
			sp := &e.specs[i]
			if sp.full() && found[i] >= 0 {
				at = min(at, found[i])
				continue
			}
			drop, reach := sp.drop && !verified[i], at
			if drop && sp.Kind != Mamba {
				reach = min(at+sp.BlockSize, len(s.hashes)*e.unit)
			}
			n := e.longest(s, sp, reach, drop, h.blocks)
			if drop {
				verified[i] = true
			} else if n < at {
				clear(verified)
			}
			at, found[i] = n, n
			best = max(best, n)
		}
		done := at >= h.tokens
		h.tokens = min(h.tokens, at)
		if done || twoKinds {
			break
		}
	}
	for _, sp := range e.specs {
		for _, g := range sp.groups {
			if keep := h.tokens / sp.BlockSize; sp.full() && len(h.blocks[g]) > keep {
				h.blocks[g] = h.blocks[g][:keep]
			}
		}
	}
	if best > h.tokens {
		h.junction = best
	}
	return h
}

// longest returns the longest prefix of at most limit tokens from which all groups of sp
// can resume, and puts their blocks into out.
func (e *engine) longest(s *sequence, sp *spec, limit int, drop bool, out [][]*block) int {
	align := e.align
	if len(e.groups) == 1 {
		align = sp.BlockSize
	}
	blocks := min(limit, len(s.hashes)*e.unit) / sp.BlockSize
	held := func(i int) bool { return e.held(s, sp, i) }
	var from, to int // blocks [from, to) are needed
	switch {
	case sp.windowed():
		from, to = windowHit(sp, blocks, align, drop, held)
	case sp.Kind == ChunkedAttention:
		from = limit / sp.Chunk * sp.Chunk / sp.BlockSize
		for to = from; to < blocks && held(to); to++ {
		}
	case sp.Kind == Mamba:
		for to = blocks; to > 0 && (to*sp.BlockSize%align != 0 || !held(to-1)); to-- {
		}
		from = max(0, to-1)
	default:
		for to < blocks && held(to) {
			to++
		}
		if drop && to > 0 {
			to--
		}
		to -= to * sp.BlockSize % align / sp.BlockSize
	}
	for _, g := range sp.groups {
		out[g] = make([]*block, to)
		for i := from; i < to; i++ {
			out[g][i] = e.pool.cached(g, e.hashOf(s, sp.Group, i))
		}
	}
	return to * sp.BlockSize
}

// windowHit searches from the end for as many blocks in a row as the window spans.
func windowHit(sp *spec, blocks, align int, drop bool, held func(int) bool) (from, to int) {
	need, shift := (sp.Window+sp.BlockSize-2)/sp.BlockSize, 0
	if drop {
		need, shift = need+1, 1
	}
	aligned := func(n int) bool { return n*sp.BlockSize%align == 0 }
	run := 0
	for i := blocks - 1; i >= 0 && (run == 0 || run < need); i-- {
		if !held(i) {
			run = 0
			continue
		}
		if run == 0 && !aligned(i+1-shift) {
			continue
		}
		if run++; run == 1 {
			to = i + 1
		}
		from = i
	}
	if run < need || run == 0 { // a shorter run that reaches the start
		from, to = 0, run
		for !aligned(to) {
			to--
		}
	}
	if drop && to > 0 {
		for to--; !aligned(to); to-- {
		}
	}
	return min(from, to), to
}

// held reports whether all groups of sp have block i of s.
func (e *engine) held(s *sequence, sp *spec, i int) bool {
	d := e.hashOf(s, sp.Group, i)
	for _, g := range sp.groups {
		if e.pool.cached(g, d) == nil {
			return false
		}
	}
	return true
}

// hashOf returns the hash of block i of a group, which is the hash of its last unit.
func (e *engine) hashOf(s *sequence, g Group, i int) digest {
	return s.hashes[(i+1)*g.BlockSize/e.unit-1]
}
