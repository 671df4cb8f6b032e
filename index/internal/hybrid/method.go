package hybrid

import "warmroute/index/internal/ends"

// method computes a member's hit of a prompt from the blocks that its full attention holds.
// Lengths are in blocks of full attention.
type method struct {
	by        decidedBy
	lastToken bool  // full attention is looked up to the prompt's last token, not the one before
	fullDrops int32 // blocks that full attention drops for a draft model
	endDrops  int32 // blocks between a hit and its end in the table, which all specs drop
	tail      int32 // tokens before a prompt's last one that are computed, too
	replay    int32 // a hit of at most so many blocks is computed again, so it counts as none
}

type decidedBy uint8

const (
	byRule  decidedBy = iota // a lookup evaluates vLLM's rule
	byEnds                   // the shard's table has the ends at which the other groups allow a hit
	byDepth                  // there are no other groups
)

// chooseMethod returns the method of a plan, and the shape of its ends. vLLM's rule has a
// closed form if the blocks of full attention are in the nodes and show where all others
// lie:
//
// If only full attention drops a block, the hit is the last end that the other groups
// allow, at least a block before the end of full attention. Mamba groups never drop a
// block.
//
// If there is one other spec and it drops a block too, it requires one block more,
// behind the hit. So the hit is a block less than the last end at which the spec has
// one block more than it needs. All blocks must have one size.
//
// Other drops depend on the order in which vLLM evaluates the specs. No model is known
// that has them but by an unusual draft model: several other specs that drop. For them a
// lookup evaluates the rule.
func (p *Plan) chooseMethod() (method, *ends.Shape) {
	l, unit := p.layout, p.home.Block
	if l.FullSpec() != 0 || !l.ByTokens() {
		return method{}, nil
	}
	drops := l.reallyDrop(p.assumed.Eagle)
	w := method{by: byDepth, fullDrops: int32(drops & 1), replay: int32(p.assumed.Replay / unit)}
	if l.Rule == RuleSGLang { // a page's last token must not need the one that is computed
		w.tail = int32(p.home.Ahead)
	}
	if len(l.Specs) == 1 {
		return w, nil
	}
	w.by, w.lastToken = byEnds, w.fullDrops > 0 && l.Rule == Rule032
	if drops&^1 != 0 {
		if w.fullDrops == 0 || len(l.Specs) > 2 || l.Specs[1].Block != unit {
			return method{}, nil
		}
		w.fullDrops, w.endDrops = 0, 1
	}
	s := p.shapeOf(drops)
	if s == nil {
		return method{}, nil
	}
	return w, s
}

// shapeOf returns the ends at which the other groups allow a hit, or nil if only the rule
// finds them. drops are the specs that drop a block.
func (p *Plan) shapeOf(drops uint32) *ends.Shape {
	l, unit := p.layout, p.home.Block
	s := &ends.Shape{Step: l.Step / unit}
	for i := 1; i < len(l.Specs); i++ {
		o := &l.Specs[i]
		one := ends.Spec{Stride: o.Block / unit, Need: 1}
		switch o.Kind {
		case Window:
			one.Need = max(1, o.WindowBlocks()) + int(drops>>i&1)
		case Chunked:
			if o.Chunk <= 0 || o.Block != l.Step || o.Chunk%o.Block != 0 {
				return nil
			}
			one.Chunk = o.Chunk / unit
		case Mamba:
		default:
			return nil
		}
		s.Specs = append(s.Specs, one)
	}
	return s
}

// specsOf returns the shape's specs, as bits, that hold a block, given the groups, as bits,
// that hold it.
func (p *Plan) specsOf(groups uint32) (specs uint32) {
	for i := range p.layout.Specs[1:] {
		if mask := p.layout.Specs[i+1].Mask; groups&mask == mask {
			specs |= 1 << i
		}
	}
	return specs
}

// limit returns how many blocks of a prompt a lookup reads of full attention.
func (w *method) limit(tokens int, block int32) int32 {
	if !w.lastToken {
		tokens = max(0, tokens-1-int(w.tail))
	}
	return int32(tokens) / block
}

// hit returns how many blocks of a prompt are hit if full attention holds the first ones
// and there are no other groups.
func (w *method) hit(held int32, tokens int, block int32) int32 {
	if held = max(0, min(held, w.limit(tokens, block))-w.fullDrops); held <= w.replay {
		return 0
	}
	return held
}

// HasEnds reports whether the ends along a home decide the member's hits.
func (m *Member) HasEnds(home Home) bool {
	p := m.joined.Load()
	return p != nil && p.method.by == byEnds && p.home == home
}

// Hit returns how many blocks of a prompt the member hits if it holds the first ones in a
// home. It returns false unless the member has no other groups and drops blocks.
func (m *Member) Hit(home Home, held int32, tokens int) (hit int32, ok bool) {
	p := m.joined.Load()
	if p == nil || p.method.by != byDepth || p.home != home {
		return 0, false
	}
	return p.method.hit(held, tokens, int32(home.Block)), true
}
