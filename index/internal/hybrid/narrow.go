package hybrid

import (
	"math/bits"

	"warmroute/index/internal/holderset"
	"warmroute/index/internal/radix"
	"warmroute/index/internal/spans"
)

// Narrowing is the result of a search in the nodes of a shard. Narrow reduces the blocks that
// slots hold to the blocks that they hit.
type Narrowing struct {
	Path   []radix.Stretch // the nodes that the prompt goes through
	Tokens int             // the length of the prompt
	Block  int32           // tokens of a block
	Plain  bool            // narrow also members without other groups

	First   []uint64 // the slots that hold the first block, as bits
	Depth   []int32  // by slot: the blocks that it holds, then the blocks that it hits
	Held    []int32  // by slot, for lookups that narrow: the blocks that it holds
	Decided []uint64 // the slots that were narrowed, as bits; clear before

	left   []uint64 // scratch
	prober nodeProber
}

// Narrow replaces the depth of each member with its hit as far as keys were looked up.
func (s *Shard) Narrow(n *Narrowing) {
	plans := *s.plans.Load()
	if len(plans) == 0 {
		return
	}
	copy(n.Held, n.Depth)
	words := len(n.First)
	if len(n.left) < words {
		n.left, n.prober.agree = make([]uint64, 2*words), make([]uint64, 2*words)
	}
	left := n.left[:words]
	n.prober = nodeProber{sets: s.sets, tables: s.Others(), path: n.Path, block: int(n.Block), agree: n.prober.agree[:words]}
	for i := range plans {
		p := &plans[i]
		if !n.Plain && !p.plan.hasOthers() {
			continue
		}
		for k := range left {
			left[k] = 0
			if k < len(p.slots) {
				left[k] = n.First[k] & p.slots[k]
			}
			n.Decided[k] |= left[k]
		}
		for k := range left {
			for left[k] != 0 {
				n.narrow(p.plan, k<<6+bits.TrailingZeros64(left[k]), left)
			}
		}
	}
}

// narrow evaluates the rule for a slot, and takes it and those with the same hit out of left.
func (n *Narrowing) narrow(p *Plan, slot int, left []uint64) {
	b, held := &n.prober, n.Depth[slot]
	for k, word := range left {
		for w := word; w != 0; w &= w - 1 {
			if bit := bits.TrailingZeros64(w); n.Depth[k<<6+bit] != held {
				word &^= 1 << bit
			}
		}
		b.agree[k] = word
	}
	b.slot, b.held, b.at = slot, int(held)*b.block, len(b.path)-1
	hit := int32(p.hit(n.Tokens, b)) / n.Block
	for k, word := range b.agree {
		left[k] &^= word
		for ; word != 0; word &= word - 1 {
			n.Depth[k<<6+bits.TrailingZeros64(word)] = hit
		}
	}
}

// nodeProber probes the blocks of a slot along a path, and keeps the slots for which every probe
// had the same result. It implements Prober.
type nodeProber struct {
	sets   *holderset.Sets
	tables []*spans.Table
	path   []radix.Stretch
	block  int      // tokens of a block in the nodes
	slot   int      // whose blocks are probed
	held   int      // the tokens that its full attention holds
	at     int      // of the path, near the last probe
	agree  []uint64 // slots, as bits
}

// Depth implements Prober.
func (b *nodeProber) Depth(spec, limit int) int { return min(limit, b.held/b.block) }

// Run implements Prober.
func (b *nodeProber) Run(spec, end int) (held bool, from int) {
	block := int32(end/b.block) - 1
	for b.path[b.at].Depth > block {
		b.at--
	}
	for b.at+1 < len(b.path) && b.path[b.at+1].Depth <= block {
		b.at++
	}
	on := &b.path[b.at]
	set, first := b.tables[spec-1].At(on.Node(), int(block-on.Depth))
	return b.sets.Agree(set, b.slot, b.agree), (int(on.Depth) + first) * b.block
}
