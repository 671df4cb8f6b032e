package hybrid

import (
	"fmt"
	"strings"

	"warmroute/index/internal/ends"
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
	method  method
	shape   *ends.Shape // the ends at which the other groups allow a hit, of byEnds
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
		p.rows = append(p.rows, row*golden)
	}
	p.method, p.shape = p.chooseMethod()
}

const golden = 0x9e3779b97f4a7c15 // 2^64 / golden ratio

// rowOf returns the key of a spec's block in the model's table; it is never 0.
func (p *Plan) rowOf(spec int, key uint64) uint64 {
	h := (key ^ p.rows[spec]) * golden
	h ^= h >> 32
	return max(1, h)
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

// decides reports whether the hits of members with the plan follow from a group in the
// index's nodes, by the ends along them.
func (p *Plan) decides(group int) bool {
	return p.method.by != byRule && p.home.Group == group
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
