package hybrid

import (
	"fmt"
	"strings"

	"warmroute/index/internal/hashtable"
	"warmroute/prefixhash"
)

// Keying says how the keys of a prompt's blocks are computed: as vLLM computes its hashes,
// or, without Hash, as this project's own chain.
type Keying struct {
	Hash *prefixhash.VLLM
	Unit int // tokens of a block
	// Ahead is the number of tokens behind each block that its key covers too. A block
	// with fewer tokens behind it has no key.
	Ahead int
	Sight Sight // which of the request's values the keys depend on
}

// Home is a group in the index's nodes: its number, the tokens of its blocks, and the
// tokens behind a block that the block's key covers too.
type Home struct{ Group, Block, Ahead int }

// keying returns how the keys of the home's blocks are computed.
func (h Home) keying() Keying { return Keying{Unit: h.Block, Ahead: h.Ahead} }

// Plan is the way in which a lookup finds a member's hit. Members with equal layouts and
// assumptions share a plan. It is immutable once it is shared.
type Plan struct {
	layout  *Layout
	assumed Assumed
	keying  Keying   // of the keys in the model's table
	home    Home     // of full attention, then of spec 0; zero: no single group shows where all blocks lie
	rows    []uint64 // by spec, the value that is mixed with its keys in the model's table
	// along says that the nodes of full attention show all blocks that the rule reads, so that the
	// shard finds the members' hits.
	along     bool
	lastToken bool // full attention is looked up to the prompt's last token, not the one before
}

// newPlan chooses how the blocks of a layout are joined with prompts. hashed is the keying
// of vLLM's hashes, if it is known, and ahead the number of tokens behind a block that
// hashes cover.
func newPlan(l *Layout, a Assumed, hashed Keying, ahead int) *Plan {
	p := &Plan{layout: l, assumed: a}
	switch {
	case l.Known && !l.ByTokens() && hashed.Hash != nil && !l.Plain():
		p.keying = hashed
	case l.FullSpec() >= 0:
		p.home = Home{l.Specs[0].Index, l.Specs[0].Block, ahead}
		p.keying.Unit = p.home.Block
	default:
		p.keying.Unit = l.Unit
	}
	p.keying.Ahead = ahead
	return p
}

// complete derives the rest of a plan that is about to be shared.
func (p *Plan) complete() {
	for i := range p.layout.Specs {
		s := &p.layout.Specs[i]
		row := uint64(s.Mask) | uint64(s.Block)<<32
		if p.keying.Hash != nil {
			row = ^row
		}
		p.rows = append(p.rows, row*hashtable.Golden)
	}
	p.along = p.isAlong()
	p.lastToken = p.along && len(p.layout.Specs) > 1 && p.layout.Drops(p.assumed.Eagle)&1 != 0 && p.layout.Rule == Rule032
}

// isAlong returns along: each spec is read no further than full attention. A window that drops a
// block for a draft model is read a block further than the hit, so full attention must drop as much.
// Mamba states drop none.
func (p *Plan) isAlong() bool {
	l := p.layout
	if l.FullSpec() != 0 || !l.ByTokens() {
		return false
	}
	drops := l.Drops(p.assumed.Eagle)
	for i := range l.Specs {
		if s := &l.Specs[i]; drops>>i&1 != 0 && s.Kind != Mamba && (drops&1 == 0 || s.Block != p.home.Block) {
			return false
		}
	}
	return true
}

// hasOthers reports whether the shard finds hits for which groups besides full attention count.
func (p *Plan) hasOthers() bool { return p.along && len(p.layout.Specs) > 1 }

// othersOf returns the specs behind full attention, as bits, that hold a block, given the groups,
// as bits, that hold it.
func (p *Plan) othersOf(groups uint32) (specs uint32) {
	for i := range p.layout.Specs[1:] {
		if mask := p.layout.Specs[i+1].Mask; groups&mask == mask {
			specs |= 1 << i
		}
	}
	return specs
}

// hit returns how many tokens of a prompt of n tokens the cache hits. SGLang's hit ends before a
// block whose key covers the last token, which is computed.
func (p *Plan) hit(n int, b Prober) int {
	if p.layout.Rule == RuleSGLang {
		n -= p.home.Ahead
	}
	return p.layout.Hit(n, p.assumed, b)
}

// rowOf returns the key of a spec's block in the model's table.
func (p *Plan) rowOf(spec int, key uint64) uint64 { return keyIn(p.rows[spec], key) }

// keyIn mixes a block's key with the row that it is in; the result is never 0.
func keyIn(row, key uint64) uint64 {
	h := (key ^ row) * hashtable.Golden
	return max(1, h^h>>32)
}

// inNodes reports whether the blocks of a spec are in the index's nodes, not in the
// model's table.
func (p *Plan) inNodes(spec int) bool { return spec == 0 && p.home.Block > 0 }

// takes reports whether the index's nodes take the blocks of a group.
func (p *Plan) takes(group int) bool {
	for i := range p.layout.Specs {
		if s := &p.layout.Specs[i]; s.Mask>>group&1 != 0 {
			return s.Kind == Full || s.Kind == Unknown
		}
	}
	return true
}

// sameBlocks reports whether blocks have the same keys and places in both plans.
func (p *Plan) sameBlocks(o *Plan) bool {
	return p.keying == o.keying && p.home == o.home && p.layout.Same(o.layout)
}

// String describes the layout for a person.
func (p *Plan) String() string {
	var b strings.Builder
	for i := range p.layout.Specs {
		s := &p.layout.Specs[i]
		if i > 0 {
			b.WriteString(" + ")
		}
		if len(s.Groups) > 1 {
			fmt.Fprintf(&b, "%d×", len(s.Groups))
		}
		fmt.Fprintf(&b, "%v %d", s.Kind, s.Block)
		if s.Window > 0 {
			fmt.Fprintf(&b, "/w%d", s.Window)
		}
	}
	return b.String()
}
