package hybrid

// located is what is known of a block by its hash.
type located struct {
	key   uint64
	known bool
	depth int // blocks of full attention from the prompt's start, itself included; 0: not known
}

// locate finds blocks by their hashes among those that events of the GPU have described, also
// if the GPU has them no more. The result is in m.found.
func (m *Member) locate(hashes []uint64) {
	m.found = append(m.found[:0], make([]located, len(hashes))...)
	p := m.current()
	if p == nil {
		return
	}
	if p.home.Block > 0 {
		m.host.Find(p.home.Group, hashes, func(i int, key uint64, depth int) {
			m.found[i] = located{key, p.keying.Hash == nil, depth}
		})
	}
	for i, hash := range hashes {
		at := &m.found[i]
		switch key, known := m.held.keys[hash]; {
		case p.keying.Hash != nil:
			at.key, at.known = hash, true
		case known:
			at.key, at.known = key, true
		case !at.known:
			at.key, at.known = m.tier.recent.get(hash)
		}
	}
}

// describeBelow gives the tier's blocks of unknown keys those of a stored event, and keeps the
// keys of a plain member: the tier may announce its blocks after the GPU has dropped them.
func (m *Member) describeBelow(e *Event) {
	t, p := m.tier, m.joined.Load()
	if t == nil || p == nil || e.Group != p.home.Group || !m.plain && len(t.unknown) == 0 {
		return
	}
	m.locate(e.Hashes)
	m.model.mu.Lock()
	learned := false
	for i, hash := range e.Hashes {
		at := m.found[i]
		if !at.known {
			continue
		}
		if m.plain {
			t.recent.put(hash, at.key)
		}
		if t.unknown[hash] != 0 {
			t.measure(at.depth)
			m.learnBelow(hash, at.key)
			learned = true
		}
	}
	m.model.mu.Unlock()
	if learned {
		m.updateTier()
	}
}

// measure learns the size of a chunk from the place of its last block.
func (t *tier) measure(depth int) {
	if t.by == Chunks && depth > 0 {
		t.chunk = gcd(t.chunk, depth)
	}
}

// rekeyBelow finds the keys of the tier's blocks again, for a plan by which blocks have other
// keys than before. Lookups do not find the member meanwhile.
func (m *Member) rekeyBelow(p *Plan) {
	if m.tier == nil {
		return
	}
	clear(m.tier.unknown)
	for b, one := range m.tier.held {
		if one.key, one.known = b.hash, true; p.keying.Hash == nil {
			one.key, one.known = m.held.keys[b.hash]
		}
		if !one.known {
			m.tier.unknown[b.hash] |= 1 << b.group
		}
		m.tier.held[b] = one
	}
}

// maxRecent bounds each of the two generations of recent keys.
const maxRecent = 16 << 10

// recentKeys are keys by hashes: the last maxRecent ones, and up to as many before them.
type recentKeys struct{ young, old map[uint64]uint64 }

func (r *recentKeys) put(hash, key uint64) {
	if r.young == nil || len(r.young) >= maxRecent {
		r.young, r.old = map[uint64]uint64{}, r.young
	}
	r.young[hash] = key
}

func (r *recentKeys) get(hash uint64) (key uint64, known bool) {
	if key, known = r.young[hash]; !known {
		key, known = r.old[hash]
	}
	return key, known
}
