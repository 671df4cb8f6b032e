package index

import (
	"math/bits"
	"slices"

	"warmroute/index/internal/cachegroups"
	"warmroute/index/internal/ends"
	"warmroute/prefixhash"
)

// way is how what full attention holds of a prompt becomes what is hit. Lengths
// are in blocks of full attention.
type way struct {
	from  wayFrom
	bound bool  // kinds are not known, so the nodes may be of a group that is not full attention
	whole bool  // full attention is looked at up to the prompt's last token, not the one before
	short int32 // blocks that full attention drops for a draft model
	lose  int32 // blocks that all drop, behind the end that they have
	first bool  // a state behind the prompt's first block is hit even if full attention holds nothing
	after int32 // hits are longer than that, or there is none
}

type wayFrom uint8

const (
	byRule   wayFrom = iota // a lookup runs vLLM's rule
	byEnds                  // the shard's ends say where other groups let a hit end
	byBlocks                // there are no other groups
	byRuns                  // kinds are not known: all groups' blocks from the start bound it
)

// wayOf is the way of a class, with the shape of its ends. Where full attention's
// blocks are in the nodes and show where all others lie, these are closed forms of
// vLLM's rule:
//
// If only full attention drops a block, hits end where the other groups let them,
// up to a block before its end. Mamba groups never drop one, since 0.27.
//
// If the one other spec drops one too, it is asked for one block more, behind the
// hit, and gives that back: so the hit is a block less than the longest prompt that
// it has with one block more than it needs. That takes blocks of one size.
//
// With more specs the order of their answers matters. Each asks for one block more
// until all of them agree, and again after one has cut the hit that did not ask for
// more. So no hit is longer than the last end at which any of them has one block
// more, and none is shorter than the last at which all have. Where these are one
// end, it is the hit; where they are not, the end is in doubt, and the rule runs.
//
// Mamba groups of 0.21, where no other spec is, find a state behind the block that full
// attention drops: also behind the first one, where full attention holds nothing. So
// the rule runs for those that hold a state there.
//
// If kinds are not known, what all groups hold from the start bounds the hit.
func (c *groupClass) wayOf() (w way, s *ends.Shape) {
	g := c.geometry
	if !g.Known {
		return c.boundOf()
	}
	if !c.run || !g.ByTokens() || g.FullSpec() != 0 || c.chain.Hash != nil {
		return way{}, nil
	}
	unit := c.scope.block
	drops := g.Drops(c.assumed.Eagle)
	w = way{from: byEnds, short: int32(drops & 1), after: int32(c.assumed.Replay / unit)}
	if len(g.Specs) == 1 {
		w.from = byBlocks
		return w, nil
	}
	w.whole = w.short > 0 && g.Rule == cachegroups.Rule032
	ahead := false
	if others := drops &^ 1; others != 0 && !c.keeps(others) {
		if w.short == 0 || len(g.Specs) == 2 && g.Specs[1].Block != unit {
			return way{}, nil
		}
		w.short, w.lose, ahead = 0, 1, len(g.Specs) > 2
		if g.Rule == cachegroups.Rule021 && c.states() {
			if ahead {
				return way{}, nil
			}
			w.lose, w.first = 0, true
		}
	}
	if s = c.shapeOf(drops, ahead); s == nil {
		return way{}, nil
	}
	return w, s
}

// boundOf is wayOf where kinds are not known.
func (c *groupClass) boundOf() (w way, s *ends.Shape) {
	if !c.geometry.Even() {
		return way{from: byRuns}, nil
	}
	w = way{from: byEnds, bound: true, lose: 1, after: int32(c.assumed.Replay / c.scope.block)}
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

// keeps says whether none of some specs, as bits, really drops a block.
func (c *groupClass) keeps(specs uint32) bool {
	for i := range c.geometry.Specs {
		if specs>>i&1 != 0 && (c.geometry.Specs[i].Kind != cachegroups.Mamba || c.geometry.Rule == cachegroups.Rule021) {
			return false
		}
	}
	return true
}

// waySlots are the slots of a shard whose hits are found in one way, as bits. They
// are immutable.
type waySlots struct {
	way
	slots []uint64
}

// take has a slot's hits be found in a way; byRule: not by the shard. sh.mu is held.
func (sh *shard) take(slot int, w way) {
	var next []waySlots
	for _, o := range *sh.ways.Load() {
		if slot>>6 < len(o.slots) && o.slots[slot>>6]>>(slot&63)&1 != 0 {
			o.slots = slices.Clone(o.slots)
			o.slots[slot>>6] &^= 1 << (slot & 63)
		}
		if o.way == w || !slices.Equal(o.slots, make([]uint64, len(o.slots))) {
			next = append(next, o)
		}
	}
	if w.from != byRule {
		i := slices.IndexFunc(next, func(o waySlots) bool { return o.way == w })
		if i < 0 {
			i = len(next)
			next = append(next, waySlots{way: w})
		}
		o := &next[i]
		o.slots = append(slices.Clone(o.slots), make([]uint64, max(0, slot>>6+1-len(o.slots)))...)
		o.slots[slot>>6] |= 1 << (slot & 63)
	}
	sh.ways.Store(&next)
}

// wayAt is how a holder's hits in a scope are found.
func (x *Index) wayAt(id HolderID, s *Scope) way {
	if m := x.memberOf(id, modelKey{s.Tenant, s.Model}); m != nil {
		if c := m.class.Load(); c != nil && c.scope == (groupScope{s.Group, s.BlockSize}) {
			return c.way
		}
	}
	return way{}
}

// narrow makes f say what holders hit whose groups decide, of a prompt of so many
// tokens, instead of what their full attention holds; those without other groups
// only if blocks, those that need more keys not.
func (ks *keyspace) narrow(r *scratch, f *Found, keys []prefixhash.Key, tokens int, blocks bool) {
	f.block = int32(ks.scope.BlockSize)
	q := &r.group
	if len(q.decide) < f.words {
		q.decide, q.doubt = make([]uint64, len(f.first)), make([]uint64, len(f.first))
	}
	clear(f.narrowed[:f.words])
	if len(*ks.sh.ways.Load()) > 0 {
		copy(f.whole, f.ends[:f.words<<6])
	}
	for _, w := range *ks.sh.ways.Load() {
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
		case w.from == byEnds:
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

// limit is how many blocks of a prompt full attention is asked for.
func (w *way) limit(tokens int, block int32) int32 {
	if !w.whole {
		tokens = max(0, tokens-1)
	}
	return int32(tokens) / block
}

// hit is how many blocks are hit of a prompt of which so many are held in full
// attention, where there is no other group.
func (w *way) hit(held int32, tokens int, block int32) int32 {
	if held = max(0, min(held, w.limit(tokens, block))-w.short); held <= w.after {
		return 0
	}
	return held
}

// narrowEnds is narrow for the slots in decide, which it clears.
func (w *waySlots) narrowEnds(ks *keyspace, r *scratch, f *Found, tokens int, decide []uint64) {
	limit := w.limit(tokens, f.block)
	if w.short > 0 {
		for i, word := range decide {
			f.narrowed[i] |= word
			for ; word != 0; word &= word - 1 {
				end := &f.ends[i<<6+bits.TrailingZeros64(word)]
				*end = min(*end, limit) - w.short
			}
		}
		limit -= w.short
	} else {
		for i, word := range decide {
			f.narrowed[i] |= word
		}
	}
	doubt := r.group.doubt[:len(decide)]
	clear(doubt)
	ks.sh.ends.Narrow(r.path, limit, w.lose, decide, doubt, f.ends)
	for i, word := range decide {
		for ; word != 0; word &= word - 1 {
			f.ends[i<<6+bits.TrailingZeros64(word)] = 0
		}
		for word = doubt[i]; word != 0; word &= word - 1 {
			r.group.ask(ks, i<<6+bits.TrailingZeros64(word))
		}
	}
	if w.after == 0 && !w.bound {
		return
	}
	for i := range decide {
		if i >= len(w.slots) {
			break
		}
		for word := f.first[i] & w.slots[i]; word != 0; word &= word - 1 {
			slot := i<<6 + bits.TrailingZeros64(word)
			if f.ends[slot] <= w.after {
				f.ends[slot] = 0
			}
			if w.bound {
				f.whole[slot] = 0
			}
		}
	}
}

// ask has the rule decide what the holder in a shard's slot hits.
func (q *groupScratch) ask(ks *keyspace, slot int) {
	m := ks.sh.x.memberOf(HolderID(ks.sh.slots.Holder(slot)), modelKey{ks.scope.Tenant, ks.scope.Model})
	if m == nil {
		return
	}
	if at := m.slotNow(); at >= 0 && at>>6 < len(q.todo) {
		q.todo[at>>6] |= 1 << (at & 63)
		q.asked = true
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
		if w := x.wayAt(m.ID, &ks.scope); w.from == byBlocks {
			hit, coming := w.hit(m.Reported, tokens, f.block), w.hit(m.Blocks, tokens, f.block)
			*m = Match{ID: m.ID, Blocks: coming, Reported: hit, Lower: coming, Storage: coming, Grouped: true,
				Hit: hit * f.block, Coming: coming * f.block, Whole: m.Reported * f.block, Seen: m.Seen}
		}
	}
}
