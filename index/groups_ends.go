package index

import (
	"warmroute/index/internal/cachegroups"
	"warmroute/index/internal/ends"
	"warmroute/index/internal/radix"
)

// shapeOf is at which ends the other groups allow a hit, nil where that takes the
// rule. drops are the specs that drop a block.
func (c *groupClass) shapeOf(drops uint32, ahead bool) *ends.Shape {
	g, unit := c.geometry, c.scope.block
	s := &ends.Shape{Step: g.Step / unit, Ahead: ahead}
	for i := range g.Specs[1:] {
		p := &g.Specs[i+1]
		one := ends.Spec{Stride: p.Block / unit, Need: 1, Drops: drops>>(i+1)&1 != 0, State: p.Kind == cachegroups.Mamba}
		if ahead && p.Block != unit {
			return nil
		}
		switch p.Kind {
		case cachegroups.Window:
			one.Need = max(1, p.WindowBlocks())
			if one.Drops && !ahead {
				one.Need++ // it is the only spec, and an end is a block behind the hit
			}
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

// specsOf is which of the shape's specs hold a block that a mask of groups holds,
// as bits.
func (c *groupClass) specsOf(groups uint32) (specs uint32) {
	if !c.geometry.Known {
		if rest := c.others(); groups&rest == rest {
			return 1
		}
		return 0
	}
	for i := range c.geometry.Specs[1:] {
		if mask := c.geometry.Specs[i+1].Mask; groups&mask == mask {
			specs |= 1 << i
		}
	}
	return specs
}

// memberAt returns the holder's member whose full attention is in a shard, and whose
// hits the shard has; nil when there is none. h.mu is held.
func (h *holder) memberAt(k shardKey) *groupMember {
	for _, m := range h.members {
		if c := m.class.Load(); c != nil && c.method.kind != byRule && c.method.kind != byRuns && m.key == (modelKey{k.tenant, k.model}) && c.scope.group == k.group {
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
	sh.updateVisibility(info.holder, slot) // a bound counts no more
	if m == nil {
		sh.setMethod(slot, method{})
		return
	}
	info.member, info.class = m, m.class.Load()
	if info.class.method.kind == byEnds {
		info.ends = ends.NewHeld(&sh.ends, &sh.nodes, &info.gpu, slot, info.class.shape)
		info.gpu.Each(func(name uint64, p radix.Place) { info.ends.Put(p, info.class.specsOf(m.held[name])) })
		info.ends.Settle()
	}
	sh.setMethod(slot, info.class.method)
	sh.updateVisibility(info.holder, slot)
}

// release drops what a slot holds in groups: it hits nothing from now on.
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
