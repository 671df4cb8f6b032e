package hybrid

import "fmt"

// Prober reports which blocks of the looked-up prompt a cache holds.
type Prober interface {
	// Run reports whether every group of a spec holds the block that ends after end
	// tokens. The same is true of its other blocks that end behind from, which is less.
	Run(spec, end int) (held bool, from int)
	// Depth returns how many blocks of a spec the cache holds from the prompt's start
	// without a gap, at most limit.
	Depth(spec, limit int) int
}

// depthOf is the Depth of a Prober that has to run through the blocks.
func depthOf(p Prober, spec, block, limit int) int {
	for k := range limit {
		if held, _ := p.Run(spec, (k+1)*block); !held {
			return k
		}
	}
	return limit
}

// Assumed has the settings of a cache that events do not contain.
type Assumed struct {
	Eagle  uint32 // groups that drop a block for a draft model, as bits
	Replay int    // vLLM computes hits of at most so many tokens again
}

// None reports whether a says that nothing drops or replays.
func (a Assumed) None() bool { return a == Assumed{} }

// String describes the assumptions for a person.
func (a Assumed) String() string {
	text := "no group drops a block"
	if a.Eagle != 0 {
		text = "groups"
		for i := range MaxGroups {
			if a.Eagle>>i&1 != 0 {
				text += fmt.Sprintf(" %d", i)
			}
		}
		text += " drop a block"
	}
	if a.Replay > 0 {
		text += fmt.Sprintf(", hits of up to %d computed again", a.Replay)
	}
	return text
}

// Alone returns how many tokens one spec would hit of a prompt of n tokens by itself.
func (g *Layout) Alone(spec, n int, a Assumed, p Prober) int {
	l := lookup{g: g, n: n, p: p}
	if g.Specs[spec].Kind == Unknown {
		b := g.Specs[spec].Block
		return p.Depth(spec, (n-1)/b) * b
	}
	return l.spec(spec, n-1, g.Drops(a.Eagle)>>spec&1 != 0)
}

// Hit returns how many tokens of a prompt of n tokens vLLM takes from the cache, or 0 if the
// layout is not known.
func (g *Layout) Hit(n int, a Assumed, p Prober) int {
	hit := 0
	switch {
	case n <= 1, !g.Known:
	case g.one():
		l := lookup{g: g, n: n, p: p}
		hit = l.spec(0, n-1, g.Drops(a.Eagle) != 0)
	default:
		l := lookup{g: g, n: n, p: p, eagle: g.Drops(a.Eagle)}
		hit = l.settle()
	}
	if hit <= a.Replay {
		return 0
	}
	return hit
}

// lookup is the evaluation of the rule for one prompt.
type lookup struct {
	g     *Layout
	n     int
	p     Prober
	eagle uint32 // specs
}

// settle evaluates the specs in turn, each up to the result of the one before it, until
// none of them finds less. It returns that fixed point.
func (l *lookup) settle() int {
	g := l.g
	hit, verified, stored := l.n-1, uint32(0), uint32(0)
	var found [MaxGroups]int
	for {
		cur := hit
		for i := range g.Specs {
			s, bit := &g.Specs[i], uint32(1)<<i
			drop := l.eagle&^verified&bit != 0
			if stored&bit != 0 && (s.Kind == Full || !drop && found[i] == cur) { // it finds the same again
				cur = min(cur, found[i])
				continue
			}
			was := cur
			cur = l.spec(i, l.limit(s, cur, drop), drop)
			if drop {
				verified |= bit
			} else if cur < was {
				verified = 0
			}
			stored |= bit
			found[i] = cur
		}
		if cur >= hit {
			return hit
		}
		hit = cur
		if g.full == 1 && len(g.Specs) == 2 {
			return hit
		}
	}
}

// limit returns the tokens up to which a spec is evaluated: a block further if it will drop
// one.
func (l *lookup) limit(s *Spec, cur int, drop bool) int {
	further, end := s.Block, l.n/l.g.Unit*l.g.Unit
	switch {
	case !drop, s.Kind == Mamba:
		return cur
	case l.g.Partial && s.Kind == Full && s.Block > l.g.Unit:
		further = l.g.Unit
	}
	if l.g.Rule != Rule032 {
		end = l.n - 1
	}
	return min(cur+further, end)
}

// spec returns the most tokens, at most lim, that one spec allows to hit.
func (l *lookup) spec(i, lim int, drop bool) int {
	switch l.g.Specs[i].Kind {
	case Full:
		return l.full(i, lim, drop)
	case Window:
		return l.window(i, lim, drop)
	case Chunked:
		return l.chunked(i, lim, drop)
	case Mamba:
		return l.mamba(i, lim)
	}
	return 0
}

func (l *lookup) full(i, lim int, drop bool) int {
	b, step := l.g.Specs[i].Block, l.g.Step
	n := l.p.Depth(i, lim/b)
	hit := n * b
	if step < b {
		top := min(lim, (n+1)*b-1)
		for end := top - top%step; end > hit; end -= step {
			if held, _ := l.p.Run(i, end); held {
				hit = end
				break
			}
		}
	}
	if drop && hit > 0 {
		hit -= min(step, b)
	}
	return hit - hit%step
}

func (l *lookup) window(i, lim int, drop bool) int {
	b, step := l.g.Specs[i].Block, l.g.Step
	need := l.g.Specs[i].WindowBlocks()
	if drop {
		need++
	}
	held, end := 0, 0
	for k := lim / b; k > 0 && held < need; {
		if held == 0 && b != step {
			at := k * b
			if drop {
				at -= b
			}
			if at%step != 0 {
				k--
				continue
			}
		}
		has, from := l.p.Run(i, k*b)
		switch {
		case !has:
			held = 0
		case held == 0:
			end = k * b
			fallthrough
		default:
			held += k - from/b
		}
		k = from / b
	}
	if held == 0 {
		return 0
	}
	if held < need { // it reaches the prompt's start
		end = held * b
		end -= end % step
	}
	if drop && end > 0 {
		end -= b
		end -= end % step
	}
	return max(0, end)
}

func (l *lookup) chunked(i, lim int, drop bool) int {
	b, c := l.g.Specs[i].Block, l.g.Specs[i].Chunk
	first, end := 0, lim/b
	if c > 0 {
		first = lim / c * c / b
	}
	for k := end; k > first; {
		has, from := l.p.Run(i, k*b)
		if k = max(first, from/b); !has {
			end = k
		}
	}
	hit := end * b
	if drop && hit > 0 {
		hit -= b
	}
	return hit - hit%l.g.Step
}

func (l *lookup) mamba(i, lim int) int {
	step := l.g.Step
	for end := lim - lim%step; end > 0; {
		held, from := l.p.Run(i, end)
		if held {
			return end
		}
		end = from - from%step
	}
	return 0
}
