package hybrid

// load is how many tokens of a prompt vLLM takes from the GPU, and how many it loads from a
// tier behind them.
type load struct{ device, host int }

func (l load) tokens() int { return l.device + l.host }

// load returns what vLLM takes of a prompt of n tokens if the GPU has so many of them. Loading
// begins at the start of a block: it replaces the part of a block that the GPU has if it
// brings more.
func (g *Layout) load(f *tierFacts, a Assumed, n, device int, p *tierProber) load {
	p.from = device - device%g.Align
	host := 0
	if f.by == Chunks {
		host = g.loadedChunks(f.chunk, g.tagged(a), n, p)
	} else {
		host = g.Hit(n-p.from, Assumed{Eagle: a.Eagle}, p) // the GPU's own rule, for the rest of the prompt
	}
	if p.from+host <= device {
		return load{device, 0}
	}
	return load{p.from, host}
}

// tagged returns the groups, as bits, that vLLM has tagged as those of a draft model: they alone
// drop a chunk. On the GPU all groups drop a block if none is tagged. If there is one group, the
// two cases look alike, and it counts as not tagged.
func (g *Layout) tagged(a Assumed) uint32 {
	for i := range g.Specs {
		if g.Specs[i].Mask&^a.Eagle != 0 {
			return a.Eagle
		}
	}
	return 0
}

// chunkRule evaluates the rule of Chunks. Chunks lie on a grid from the prompt's first token.
// The groups are evaluated in turn, each up to the end that the one before has found, until
// nothing becomes shorter.
type chunkRule struct {
	blocks int // in a chunk
	n      int // tokens of the prompt
	from   int // tokens from which chunks are looked for, a whole number of blocks
	end    int // tokens up to which they may be used
	p      *tierProber

	eagle    uint32 // the groups, as bits, that drop a chunk for a draft model
	verified uint32 // the groups of eagle, as bits, that have already dropped a chunk
}

// loadedChunks returns how many tokens behind p.from are loaded in chunks of so many blocks of
// full attention.
func (g *Layout) loadedChunks(blocks int, eagle uint32, n int, p *tierProber) int {
	var order [MaxGroups]*Spec
	specs := g.byWindow(order[:0], blocks)
	if blocks <= 0 || specs == nil {
		return 0
	}
	r := chunkRule{blocks: blocks, n: n, from: p.from, end: n, p: p, eagle: eagle}
	if len(specs) > g.full {
		r.end = n - 1 // the engine computes the last token again
		for _, s := range specs {
			if s.Kind == Mamba {
				r.end -= r.end % (s.Block * blocks)
			}
		}
	}
	return r.settle(specs, g.full)
}

// byWindow returns the specs in the order of evaluation: full attention, then long windows
// before short ones; nil if it is not known how the connector evaluates one.
func (g *Layout) byWindow(specs []*Spec, blocks int) []*Spec {
	for i := range g.Specs {
		s := &g.Specs[i]
		if s.Kind == Unknown || s.Kind == Chunked {
			return nil
		}
		at := len(specs)
		specs = append(specs, s)
		for ; s.Kind != Full && at > g.full && specs[at-1].chunksNeeded(blocks) < s.chunksNeeded(blocks); at-- {
			specs[at] = specs[at-1]
		}
		specs[at] = s
	}
	return specs
}

// chunksNeeded returns how many chunks a window needs, and 1 for a state.
func (s *Spec) chunksNeeded(blocks int) int {
	if s.Kind != Window {
		return 1
	}
	return ceil(s.Window, s.Block*blocks)
}

func ceil(a, b int) int { return (a + b - 1) / b }

// settle returns how many tokens behind from all specs allow to load.
func (r *chunkRule) settle(specs []*Spec, full int) (hit int) {
	for todo := specs; len(todo) > 0; {
		other, again := false, false
		for _, s := range todo {
			for _, group := range s.Groups {
				size := s.Block * r.blocks
				r.end = min(r.end, r.n/size*size)
				if r.end-r.from < size {
					return 0
				}
				drop := r.eagle&^r.verified>>group&1 != 0
				chunks := r.spec(s, group, size, drop)
				if drop {
					r.verified |= 1 << group
					chunks--
				}
				r.end = min(r.end, size*(r.from/size+chunks))
				now := r.end - r.from
				if chunks <= 0 || now < size {
					return 0 // less than a chunk is not loaded
				}
				if now < hit && r.eagle>>group&1 == 0 {
					r.verified = 0
				}
				again = again || now < hit && other
				other = other || s.Kind != Full
				hit = now
			}
		}
		if todo = nil; again {
			todo = specs[full:]
		}
	}
	return hit
}

// spec returns up to which chunk, from the one that holds from, a group of a spec allows to
// load: full attention the chunks without a gap; a window the last run that is as long as it
// reaches, or that begins where the loading does. A group that will drop a chunk is looked up a
// chunk further.
func (r *chunkRule) spec(s *Spec, group, size int, drop bool) (chunks int) {
	more := 0
	if drop {
		more = 1
	}
	first, last := r.from/size, min(ceil(r.end+more*size, size), r.n/size)
	if s.Kind == Full {
		for first+chunks < last && r.p.has(group, (first+chunks+1)*size) {
			chunks++
		}
		return chunks
	}
	each := s.chunksNeeded(r.blocks)
	need, run := each, 0
	if s.Kind == Window { // the right edge may cut the last chunk
		end := min(r.end, (last-more)*size)
		need = max(each, ceil(s.Window-1+(size-end%size)%size, size))
	}
	each, need = each+more, need+more
	for i := last - first - 1; i >= 0; i-- {
		if !r.p.has(group, (first+i+1)*size) {
			run, need = 0, each
			continue
		}
		if run++; run == need {
			return i + need
		}
	}
	return run
}
