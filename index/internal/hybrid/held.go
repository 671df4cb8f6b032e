package hybrid

// held is the blocks of a member, by vLLM's hash. Blocks of a member with one group of
// full attention are in the index's nodes alone.
type held struct {
	groups map[uint64]uint32 // the groups that hold a block, as bits
	copies map[groupHash]uint32
	keys   map[uint64]uint64 // own key at the chain's unit
	lost   bool              // the member has stored more than the budget allows
	moved  []uint64          // blocks whose groups have changed since the index's shard read them
}

// groupHash is a block of one group.
type groupHash struct {
	group int
	hash  uint64
}

// lose records that the member has stored more than the budget allows.
func (m *Member) lose() {
	if !m.held.lost {
		m.held.lost = true
		m.updateTrust()
	}
}

// has reports whether a group holds a block.
func (h *held) has(b groupHash) bool { return h.groups[b.hash]>>b.group&1 != 0 }

// add counts a copy of a block. model.mu is held.
func (m *Member) add(b groupHash) {
	bit := uint32(1) << b.group
	was, known := m.held.groups[b.hash]
	if was&bit != 0 {
		m.held.copies[b]++
		return
	}
	if !known && !m.model.budget.take() {
		m.lose()
		return
	}
	m.held.groups[b.hash] = was | bit
	m.changed(b, was, was|bit)
}

// drop takes away a copy of a block. model.mu is held.
func (m *Member) drop(b groupHash) {
	was := m.held.groups[b.hash]
	if !m.held.has(b) {
		return
	}
	if len(m.held.copies) > 0 {
		if n := m.held.copies[b]; n > 0 {
			if m.held.copies[b] = n - 1; n == 1 {
				delete(m.held.copies, b)
			}
			return
		}
	}
	is := was &^ (1 << b.group)
	m.changed(b, was, is)
	if is == 0 {
		delete(m.held.groups, b.hash)
		m.model.budget.give(1)
	} else {
		m.held.groups[b.hash] = is
	}
}

// changed lets lookups see that other groups hold a block.
func (m *Member) changed(b groupHash, was, is uint32) {
	m.publish(b.hash, was, is)
	if p := m.joined.Load(); p != nil && p.hasOthers() && b.group != p.home.Group {
		m.held.moved = append(m.held.moved, b.hash)
	}
}

// setKey records the own key of a block. model.mu is held.
func (m *Member) setKey(hash, key uint64) {
	if was, ok := m.held.keys[hash]; ok && was == key {
		return
	}
	if len(m.held.keys) >= m.model.budget.Max {
		for h := range m.held.keys { // the keys of blocks that no group holds go first
			if _, held := m.held.groups[h]; !held {
				delete(m.held.keys, h)
			}
		}
		if len(m.held.keys) >= m.model.budget.Max {
			m.lose()
			return
		}
	}
	groups := m.held.groups[hash]
	m.publish(hash, groups, 0)
	m.held.keys[hash] = key
	m.publish(hash, 0, groups)
}

// publish changes the model's table for a block from some groups, as bits, to others.
// model.mu is held.
func (m *Member) publish(hash uint64, was, is uint32) {
	p := m.joined.Load()
	if p == nil || m.Seat() < 0 {
		return
	}
	key := hash
	if p.keying.Hash == nil {
		var known bool
		if key, known = m.held.keys[hash]; !known {
			return
		}
	}
	for i := range p.layout.Specs {
		if p.inNodes(i) {
			continue
		}
		mask := p.layout.Specs[i].Mask
		if had, has := was&mask == mask, is&mask == mask; had != has {
			m.model.table.flip(p.rowOf(i, key), m.Seat(), has)
		}
	}
}
