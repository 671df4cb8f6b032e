package hybrid

// loaded returns how many tokens of a prompt of n tokens vLLM loads from a tier behind the
// ones that it takes from the GPU.
func (g *Layout) loaded(f tierFacts, n, device int, p *tierProber) int {
	if f.by == Chunks {
		return g.loadedChunks(f.chunk, n, device, p)
	}
	if device%g.Align != 0 {
		return 0
	}
	p.from = device
	return g.Hit(n-device, Assumed{}, p) // the GPU's own rule, for the rest of the prompt
}

// chunkRule evaluates the rule of Chunks. Chunks lie on a grid from the prompt's first token.
// The groups are evaluated in turn, each up to the end that the one before has found, until
// nothing becomes shorter.
type chunkRule struct {
	blocks int // in a chunk
	n      int // tokens of the prompt
	from   int // tokens from which chunks are looked for
	end    int // tokens up to which they may be used
	p      *tierProber
}

// loadedChunks evaluates the rule for chunks of so many blocks of full attention.
func (g *Layout) loadedChunks(blocks, n, device int, p *tierProber) int {
	var order [MaxGroups]*Spec
	specs := g.byWindow(order[:0], blocks)
	if blocks <= 0 || specs == nil {
		return 0
	}
	r := chunkRule{blocks: blocks, n: n, from: device - device%g.Align, end: n, p: p}
	if len(specs) > g.full {
		r.end = n - 1 // the engine computes the last token again
		for _, s := range specs {
			if s.Kind == Mamba {
				r.end -= r.end % (s.Block * blocks)
			}
		}
	}
	hit := r.settle(specs, g.full)
	if tail := device % g.Align; tail > 0 {
		hit = max(0, hit-tail)
	}
	return hit
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
				chunks := r.spec(s, group, size)
				if chunks == 0 {
					return 0
				}
				r.end = min(r.end, size*(r.from/size+chunks))
				now := r.end - r.from
				if now < size {
					return 0 // less than a chunk is not loaded
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
// reaches, or that begins where the loading does.
func (r *chunkRule) spec(s *Spec, group, size int) (chunks int) {
	first, last := r.from/size, min(ceil(r.end, size), r.n/size)
	if s.Kind == Full {
		for first+chunks < last && r.p.has(group, (first+chunks+1)*size) {
			chunks++
		}
		return chunks
	}
	each := s.chunksNeeded(r.blocks)
	need, run := each, 0
	if s.Kind == Window { // the right edge may cut the last chunk
		end := min(r.end, last*size)
		need = max(each, ceil(s.Window-1+(size-end%size)%size, size))
	}
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
