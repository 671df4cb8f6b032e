package index

import (
	"slices"

	"warmroute/index/internal/cachegroups"
	"warmroute/index/internal/ends"
	"warmroute/index/internal/radix"
)

// way is how what full attention holds of a prompt becomes what is hit. Lengths
// are in blocks of full attention.
type way struct {
	from  wayFrom
	whole bool  // full attention is looked at up to the prompt's last token, not the one before
	short int32 // blocks that full attention drops for a draft model
	lose  int32 // blocks that all drop, behind the end that they have
	after int32 // hits are longer than that, or there is none
}

type wayFrom uint8

const (
	byRule   wayFrom = iota // a lookup runs vLLM's rule
	byEnds                  // the shard's ends say where other groups let a hit end
	byBlocks                // there are no other groups
	byRuns                  // no kind is known: all groups' blocks from the start bound it
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
// it has with one block more than it needs. That takes blocks of one size. With
// more specs the order of their answers matters, which the rule follows.
func (c *groupClass) wayOf() (w way, s *ends.Shape) {
	g := c.geometry
	if !g.Known {
		return way{from: byRuns}, nil
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
	if others := drops &^ 1; others != 0 && !c.keeps(others) {
		if w.short == 0 || len(g.Specs) != 2 || g.Specs[1].Kind == cachegroups.Mamba || g.Specs[1].Block != unit {
			return way{}, nil
		}
		w.short, w.lose = 0, 1
	}
	if s = c.shapeOf(&w); s == nil {
		return way{}, nil
	}
	return w, s
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

// shapeOf is at which ends the other groups allow a hit, nil where that takes the rule.
func (c *groupClass) shapeOf(w *way) *ends.Shape {
	g, unit := c.geometry, c.scope.block
	s := &ends.Shape{Step: g.Step / unit, After: int(w.after + w.lose)}
	for i := range g.Specs[1:] {
		p := &g.Specs[i+1]
		one := ends.Spec{Stride: p.Block / unit, Need: 1}
		switch p.Kind {
		case cachegroups.Window:
			one.Need = max(1, (p.Window-1+p.Block-1)/p.Block) + int(w.lose)
		case cachegroups.Chunked:
			chunk := p.Chunk
			if chunk <= 0 {
				chunk = c.assumed.Chunk
			}
			if chunk <= 0 || p.Block != g.Step || chunk%p.Block != 0 {
				return nil
			}
			one.Chunk = chunk / unit
		case cachegroups.Mamba:
		default:
			return nil
		}
		s.Specs = append(s.Specs, one)
	}
	return s
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

// specsOf is which of the shape's specs hold a block that a mask of groups holds,
// as bits.
func (c *groupClass) specsOf(groups uint32) (specs uint32) {
	for i := range c.geometry.Specs[1:] {
		if mask := c.geometry.Specs[i+1].Mask; groups&mask == mask {
			specs |= 1 << i
		}
	}
	return specs
}

// memberAt is the holder's member whose full attention is in a shard, and whose
// hits the shard says; nil when there is none. h.mu is held.
func (h *holder) memberAt(k shardKey) *groupMember {
	for _, m := range h.members {
		if c := m.class.Load(); c != nil && c.way.from != byRule && c.way.from != byRuns && m.key == (modelKey{k.tenant, k.model}) && c.scope.group == k.group {
			return m
		}
	}
	return nil
}

// attach makes a member's groups decide what a slot hits; nil: none do. The member's
// holder.mu and sh.mu are held.
func (sh *shard) attach(slot int, m *groupMember) {
	sh.release(slot)
	info := &sh.info[slot]
	if m == nil {
		sh.take(slot, way{})
		return
	}
	info.member, info.class = m, m.class.Load()
	if info.class.way.from == byEnds {
		info.ends = ends.NewHeld(&sh.ends, &sh.nodes, &info.gpu, slot, info.class.shape)
		info.gpu.Each(func(name uint64, p radix.Place) { info.ends.Put(p, info.class.specsOf(m.held[name])) })
		info.ends.Settle()
	}
	sh.take(slot, info.class.way)
}

// release forgets what a slot holds in groups: it hits nothing from now on.
func (sh *shard) release(slot int) {
	info := &sh.info[slot]
	if info.ends != nil {
		info.ends.Clear()
	}
	info.member, info.class, info.ends = nil, nil, nil
}

// follow notes what the groups have of blocks that full attention has from now on,
// by their names.
func (i *slotInfo) follow(p radix.Place, names []uint64) {
	for k, name := range names {
		i.ends.Put(p+radix.Place(k), i.class.specsOf(i.member.held[name]))
	}
	i.ends.Settle()
}

// attach has the shards know the member's class. h.mu is held.
func (m *groupMember) attach() {
	m.moved = m.moved[:0]
	for _, sh := range m.holder.shards {
		if sh.key.tenant != m.key.tenant || sh.key.model != m.key.model {
			continue
		}
		sh.mu.Lock()
		if slot, ok := sh.slots.Of(int32(m.holder.id)); ok {
			to := m.holder.memberAt(sh.key)
			if info := &sh.info[slot]; info.member != to || to != nil && info.class != to.class.Load() {
				sh.attach(slot, to)
			}
		}
		sh.mu.Unlock()
	}
}

// settle has the ends follow the blocks whose groups have changed. h.mu is held,
// and no other lock.
func (m *groupMember) settle() {
	if len(m.moved) == 0 {
		return
	}
	for _, sh := range m.holder.shards {
		if m.holder.memberAt(sh.key) != m {
			continue
		}
		sh.mu.Lock()
		if slot, ok := sh.slots.Of(int32(m.holder.id)); ok && sh.info[slot].ends != nil {
			info := &sh.info[slot]
			for _, hash := range m.moved {
				if p := info.gpu.Find(hash); p != 0 {
					info.ends.Put(p, info.class.specsOf(m.held[hash]))
				}
			}
			info.ends.Settle()
		}
		sh.mu.Unlock()
	}
	m.moved = m.moved[:0]
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
