package index

import (
	"math/bits"
	"slices"

	"warmroute/index/internal/cachegroups"
	"warmroute/index/internal/ends"
	"warmroute/prefixhash"
)

// method computes the hit of a prompt from what full attention holds of it. Lengths
// are in blocks of full attention.
type method struct {
	kind       methodKind
	bound      bool  // kinds are not known, so the nodes may be of a group that is not full attention
	whole      bool  // full attention is looked at up to the prompt's last token, not the one before
	fullDrops  int32 // blocks that full attention drops for a draft model
	endDrops   int32 // blocks between a hit and its end in the table, which all specs drop
	firstState bool  // a state behind the prompt's first block is hit even if full attention holds nothing
	replay     int32 // hits of at most so many blocks are computed again, so they count as none
}

type methodKind uint8

const (
	byRule   methodKind = iota // a lookup runs vLLM's rule
	byEnds                     // the shard's table has the ends at which other groups allow a hit
	byBlocks                   // there are no other groups
	byRuns                     // kinds are not known: all groups' blocks from the start bound it
)

// methodOf returns the method of a class, and the shape of its ends. If the blocks of
// full attention are in the nodes and determine the positions of all others, vLLM's
// rule has closed forms:
//
// If only full attention drops a block, the hit is the last end that the other groups
// allow, at least a block before the end of full attention. Mamba groups never drop one, since 0.27.
//
// If there is one other spec and it drops a block too, it requires one block more,
// behind the hit. So the hit is a block less than the last end at which the spec has
// one block more than it needs. All blocks must have one size.
//
// With more specs, vLLM's order of them matters: each requires one block more until it
// has been evaluated so once, and again after a spec that did not has shortened the
// hit. So the hit is at most the last end at which any spec has one block more, and at
// least the last end at which all specs have it. If these ends are equal, they are the
// hit; if not, the end is in doubt, and the rule runs.
//
// Mamba groups of 0.21, where no other spec is, find a state behind the block that full
// attention drops: also behind the first one, where full attention holds nothing. So
// the rule runs for those that hold a state there.
//
// If kinds are not known, what all groups hold from the start bounds the hit.
func (c *groupClass) methodOf() (w method, s *ends.Shape) {
	g := c.geometry
	if !g.Known {
		return c.boundOf()
	}
	if !c.run || !g.ByTokens() || g.FullSpec() != 0 || c.chain.Hash != nil {
		return method{}, nil
	}
	unit := c.scope.block
	drops := g.Drops(c.assumed.Eagle)
	w = method{kind: byEnds, fullDrops: int32(drops & 1), replay: int32(c.assumed.Replay / unit)}
	if len(g.Specs) == 1 {
		w.kind = byBlocks
		return w, nil
	}
	w.whole = w.fullDrops > 0 && g.Rule == cachegroups.Rule032
	ahead := false
	if others := drops &^ 1; others != 0 && !c.keeps(others) {
		if w.fullDrops == 0 || len(g.Specs) == 2 && g.Specs[1].Block != unit {
			return method{}, nil
		}
		w.fullDrops, w.endDrops, ahead = 0, 1, len(g.Specs) > 2
		if g.Rule == cachegroups.Rule021 && c.states() {
			if ahead {
				return method{}, nil
			}
			w.endDrops, w.firstState = 0, true
		}
	}
	if s = c.shapeOf(drops, ahead); s == nil {
		return method{}, nil
	}
	return w, s
}

// boundOf is methodOf where kinds are not known.
func (c *groupClass) boundOf() (w method, s *ends.Shape) {
	if !c.geometry.Even() {
		return method{kind: byRuns}, nil
	}
	w = method{kind: byEnds, bound: true, endDrops: 1, replay: int32(c.assumed.Replay / c.scope.block)}
	return w, &ends.Shape{Step: 1, Specs: []ends.Spec{{Stride: 1, All: true}}}
}

// others is the groups, as bits, that are not in the index's nodes.
func (c *groupClass) others() (groups uint32) {
	for i := range c.geometry.Specs {
		groups |= c.geometry.Specs[i].Mask
	}
	return groups &^ (1 << c.scope.group)
}

// states reports whether there are Mamba groups.
func (c *groupClass) states() bool {
	return slices.ContainsFunc(c.geometry.Specs, func(s cachegroups.Spec) bool { return s.Kind == cachegroups.Mamba })
}

// keeps reports whether no spec of a set, as bits, really drops a block.
func (c *groupClass) keeps(specs uint32) bool {
	for i := range c.geometry.Specs {
		if specs>>i&1 != 0 && (c.geometry.Specs[i].Kind != cachegroups.Mamba || c.geometry.Rule == cachegroups.Rule021) {
			return false
		}
	}
	return true
}

// methodSlots are the slots of a shard whose hits are found by one method, as bits. They
// are immutable.
type methodSlots struct {
	method
	slots []uint64
}

// setMethod sets by which method a slot's hits are found; byRule: not by the shard. sh.mu is held.
func (sh *shard) setMethod(slot int, w method) {
	var next []methodSlots
	for _, o := range *sh.methods.Load() {
		if slot>>6 < len(o.slots) && o.slots[slot>>6]>>(slot&63)&1 != 0 {
			o.slots = slices.Clone(o.slots)
			o.slots[slot>>6] &^= 1 << (slot & 63)
		}
		if o.method == w || !slices.Equal(o.slots, make([]uint64, len(o.slots))) {
			next = append(next, o)
		}
	}
	if w.kind != byRule {
		i := slices.IndexFunc(next, func(o methodSlots) bool { return o.method == w })
		if i < 0 {
			i = len(next)
			next = append(next, methodSlots{method: w})
		}
		o := &next[i]
		o.slots = append(slices.Clone(o.slots), make([]uint64, max(0, slot>>6+1-len(o.slots)))...)
		o.slots[slot>>6] |= 1 << (slot & 63)
	}
	sh.methods.Store(&next)
}

// methodAt is how a holder's hits in a scope are found.
func (x *Index) methodAt(id HolderID, s *Scope) method {
	if m := x.memberOf(id, modelKey{s.Tenant, s.Model}); m != nil {
		if c := m.class.Load(); c != nil && c.scope == (groupScope{s.Group, s.BlockSize, 0}) {
			return c.method
		}
	}
	return method{}
}

// narrow replaces what full attention holds in f by what is hit, of a prompt of so many
// tokens, instead of what their full attention holds; those without other groups
// only if blocks, those that need more keys not.
func (ks *keyspace) narrow(r *scratch, f *Found, keys []prefixhash.Key, tokens int, blocks bool) {
	f.block = int32(ks.scope.BlockSize)
	q := &r.group
	if len(q.decide) < f.words {
		q.decide, q.doubt = make([]uint64, len(f.first)), make([]uint64, len(f.first))
	}
	clear(f.narrowed[:f.words])
	if len(*ks.sh.methods.Load()) > 0 {
		copy(f.whole, f.ends[:f.words<<6])
	}
	for _, w := range *ks.sh.methods.Load() {
		decide, any := q.decide[:f.words], uint64(0)
		for i := range decide {
			decide[i] = 0
			if i < len(w.slots) {
				decide[i] = f.first[i] & w.slots[i]
			}
			any |= decide[i]
		}
		switch {
		case any == 0, w.whole && tokens/ks.scope.BlockSize > len(keys):
		case w.kind == byEnds:
			w.narrowEnds(ks, r, f, tokens, decide)
		case blocks:
			for i, word := range decide {
				f.narrowed[i] |= word
				for ; word != 0; word &= word - 1 {
					end := &f.ends[i<<6+bits.TrailingZeros64(word)]
					*end = w.hit(*end, tokens, f.block)
				}
			}
		}
	}
}

// limit is how many blocks of a prompt are looked up in full attention.
func (w *method) limit(tokens int, block int32) int32 {
	if !w.whole {
		tokens = max(0, tokens-1)
	}
	return int32(tokens) / block
}

// hit is how many blocks are hit of a prompt of which so many are held in full
// attention, where there is no other group.
func (w *method) hit(held int32, tokens int, block int32) int32 {
	if held = max(0, min(held, w.limit(tokens, block))-w.fullDrops); held <= w.replay {
		return 0
	}
	return held
}

// narrowEnds is narrow for the slots in decide, which it clears.
func (w *methodSlots) narrowEnds(ks *keyspace, r *scratch, f *Found, tokens int, decide []uint64) {
	limit := w.limit(tokens, f.block)
	if w.fullDrops > 0 {
		for i, word := range decide {
			f.narrowed[i] |= word
			for ; word != 0; word &= word - 1 {
				end := &f.ends[i<<6+bits.TrailingZeros64(word)]
				*end = min(*end, limit) - w.fullDrops
			}
		}
		limit -= w.fullDrops
	} else {
		for i, word := range decide {
			f.narrowed[i] |= word
		}
	}
	doubt := r.group.doubt[:len(decide)]
	clear(doubt)
	ks.sh.ends.Narrow(r.path, limit, w.endDrops, decide, doubt, f.ends)
	for i, word := range decide {
		for ; word != 0; word &= word - 1 {
			f.ends[i<<6+bits.TrailingZeros64(word)] = 0
		}
		for word = doubt[i]; word != 0; word &= word - 1 {
			r.group.queue(ks, i<<6+bits.TrailingZeros64(word))
		}
	}
	if w.replay == 0 && !w.bound {
		return
	}
	for i := range decide {
		if i >= len(w.slots) {
			break
		}
		for word := f.first[i] & w.slots[i]; word != 0; word &= word - 1 {
			slot := i<<6 + bits.TrailingZeros64(word)
			if f.ends[slot] <= w.replay {
				f.ends[slot] = 0
			}
			if w.bound {
				f.whole[slot] = 0
			}
		}
	}
}

// queue has the rule decide what the holder in a shard's slot hits.
func (q *groupScratch) queue(ks *keyspace, slot int) {
	m := ks.sh.x.memberOf(HolderID(ks.sh.slots.Holder(slot)), modelKey{ks.scope.Tenant, ks.scope.Model})
	if m == nil {
		return
	}
	if at := m.slotNow(); at >= 0 && at>>6 < len(q.todo) {
		q.todo[at>>6] |= 1 << (at & 63)
		q.queued = true
	}
}

// narrowList is narrow for holders without other groups that are in a list, with
// what is speculated to be held.
func (ks *keyspace) narrowList(f *Found, tokens int) {
	x := ks.sh.x
	for i := range f.list {
		m := &f.list[i]
		if m.Grouped || m.HybridUnknown {
			continue
		}
		if w := x.methodAt(m.ID, &ks.scope); w.kind == byBlocks {
			hit, coming := w.hit(m.Reported, tokens, f.block), w.hit(m.Blocks, tokens, f.block)
			*m = Match{ID: m.ID, Blocks: coming, Reported: hit, Lower: coming, Storage: coming, Grouped: true,
				Hit: hit * f.block, Coming: coming * f.block, Whole: m.Reported * f.block, Seen: m.Seen}
		}
	}
}
