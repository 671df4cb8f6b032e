package hybrid

import (
	"math/bits"

	"warmroute/index/internal/hashtable"
)

// Connector is the way in which vLLM moves blocks between the GPU and CPU memory.
type Connector uint8

const (
	NoConnector Connector = iota
	Chunks                // OffloadingConnector: several blocks at once, under the hash of the last
	Singles               // SimpleCPUOffloadConnector: block by block
)

// Offload is a Stored event of CPU memory. It is joined by hashes to the blocks that events of
// the GPU have described.
type Offload struct {
	By     Connector
	Group  int
	Hashes []uint64
	Whole  bool // Hashes are all blocks of a chunk; otherwise the last alone
}

// tier is the blocks that a member's connector has in CPU memory: of Chunks the last block
// of each chunk.
type tier struct {
	tierFacts
	held    map[groupHash]tierBlock
	unknown map[uint64]uint32 // the groups, as bits, that hold a block whose key is not known
	recent  recentKeys        // of a plain member's blocks
	lost    bool              // more was stored than the budget allows
	clears
}

// tierBlock is a block, or a chunk.
type tierBlock struct {
	at     uint64 // the number of its store
	key    uint64
	known  bool // key is the block's
	doubt  bool // it is published as one that may be gone
	copies int  // beyond the first, of Singles
}

// tierFacts is the part of a tier that lookups read, besides the model's table.
type tierFacts struct {
	by      Connector
	chunk   int    // blocks of full attention in a chunk, 0: not known
	cleared uint64 // the number of the last AllBlocksCleared
	// undecided reports that the last AllBlocksCleared may be the GPU's or the tier's. The blocks on
	// the GPU count as gone then: with a clear of the GPU alone the tier has most of them.
	undecided bool
}

// Offloaded applies a Stored event of CPU memory, and returns how many blocks are new.
func (m *Member) Offloaded(e *Offload) (stored int) {
	t := m.tier
	if t == nil {
		t = &tier{tierFacts: tierFacts{by: e.By}, held: map[groupHash]tierBlock{}, unknown: map[uint64]uint32{}}
		m.tier = t
		m.tiered.Store(&tierFacts{by: t.by})
		if p := m.plan.Load(); p != nil {
			m.join(p.layout) // lookups find the member from now on
		}
	}
	hashes := e.Hashes
	if t.by == Chunks {
		hashes = hashes[max(0, len(hashes)-1):]
	}
	m.locate(hashes)
	before := len(t.held)
	m.changeTier(func(*tier) {
		for i, hash := range hashes {
			if t.measure(m.found[i].depth); e.Whole {
				t.chunk = len(e.Hashes)
			}
			m.storeBelow(groupHash{e.Group, hash}, m.found[i])
		}
	})
	return max(0, len(t.held)-before)
}

// UntrackedBelow records that a lower tier has blocks of which no event tells when they are gone,
// or how they are looked up.
func (m *Member) UntrackedBelow() {
	if !m.untracked {
		m.untracked = true
		m.updateTrust()
	}
}

// Untracked reports whether UntrackedBelow has been recorded, and no settings say that the blocks
// are loaded.
func (m *Member) Untracked() bool { return m.untracked && (m.settings == nil || !m.settings.Loads) }

// belowWhy returns the reason, in one sentence, why what a prompt loads from lower tiers may
// differ from the prediction, or "".
func (m *Member) belowWhy(p *Plan) string {
	t := m.tier
	switch {
	case m.Untracked():
		return "a connector copies its blocks to memory or storage and announces no removals, or no order of lookup, that can be followed: use OffloadingConnector or SimpleCPUOffloadConnector without secondary tiers, or set index.storage_ttl to the time for which its storage keeps a block"
	case t == nil:
		return ""
	case t.lost:
		return "its CPU memory has more blocks than are kept of one cache, so less may be credited than is loaded"
	case t.by == Chunks && t.chunk == 0 && len(t.held) > 0:
		return "how many blocks its connector moves at once is not known yet, so nothing is credited that it loads from CPU memory"
	case len(t.unknown) > 0:
		return "its CPU memory has blocks that no event has described, so less may be credited than is loaded"
	case t.undecided:
		return "it has cleared its GPU cache or its CPU memory, and no event tells which yet"
	case t.by == Chunks && p.assumed.Eagle != 0 && p.layout.one():
		return "its draft model may drop a chunk of what it loads from CPU memory, which no event tells"
	case p.layout.byWindow(nil, max(1, t.chunk)) == nil:
		return "what it loads from CPU memory for chunked attention is not followed"
	}
	return ""
}

// goneWhy returns the reason, in one sentence, why blocks of the tier may be gone, or "".
func (m *Member) goneWhy() string {
	t := m.tier
	switch {
	case t == nil, !t.doubtful():
		return ""
	case t.oldest() <= t.vague:
		return "its CPU memory was cleared, and no event tells when, so more may be credited than is loaded"
	}
	return "its GPU cache was cleared, and no event tells whether its CPU memory was, so more may be credited than is loaded"
}

// Announces reports whether the connector announces the clears of its tier, which look like the
// GPU's.
func (m *Member) Announces() bool { return m.tier != nil && m.tier.by == Singles }

// Chained reports whether each event of full attention continues where its blocks lie: with
// blocks in parts it may begin inside a block.
func (m *Member) Chained() bool {
	p := m.plan.Load()
	return p != nil && p.layout.ByTokens()
}

// HitsFirst reports whether a prompt hits its first block if the GPU has it: no other group may
// lack it, and no draft model drops it.
func (m *Member) HitsFirst() bool {
	p := m.plan.Load()
	return p != nil && p.layout.Plain() && p.assumed.None()
}

// OnGPU reports whether the GPU has a block of a group.
func (m *Member) OnGPU(group int, hash uint64) bool { return m.host.Leading(group, []uint64{hash}) > 0 }

// HasTier reports whether an event of CPU memory has come.
func (m *Member) HasTier() bool { return m.tier != nil }

// Below returns how many blocks, or chunks of blocks, the tier has.
func (m *Member) Below() int {
	if m.tier == nil {
		return 0
	}
	return len(m.tier.held)
}

// Unloaded applies a Removed event of CPU memory, and returns how many of the blocks the
// tier had. later says that no AllBlocksCleared is in the same batch, which the removal may have
// come before.
func (m *Member) Unloaded(group int, hashes []uint64, later bool) (known int) {
	m.changeTier(func(t *tier) {
		kept := false
		for _, hash := range hashes {
			b := groupHash{group, hash}
			one := t.held[b]
			kept = kept || later && one.copies == 0 && one.doubt && t.oldest() > t.vague
			if m.dropBelow(b, false) {
				known++
			}
		}
		if kept { // a clear announces no removals
			m.resolve(true)
		}
	})
	return known
}

// changeTier changes the tier, if there is one, with model.mu held, and publishes the tier's facts
// and how reliable the member's answers are.
func (m *Member) changeTier(change func(t *tier)) {
	if m.tier == nil {
		return
	}
	m.model.mu.Lock()
	change(m.tier)
	m.model.mu.Unlock()
	m.updateTier()
}

// storeBelow puts a block into the tier. model.mu is held.
func (m *Member) storeBelow(b groupHash, at located) {
	t := m.tier
	was, has := t.held[b]
	if has && t.by == Singles {
		was.copies++
		t.held[b] = was
		return
	}
	if has {
		m.provenClear(was)
		m.dropBelow(b, true)
		if !at.known {
			at.key, at.known = was.key, was.known
		}
	}
	if !m.model.budget.take() {
		t.lost = true
		return
	}
	now := tierBlock{at: t.next(), key: at.key, known: at.known}
	t.held[b] = now
	t.order = append(t.order, tierStore{b, now.at})
	t.compact()
	if !now.known {
		t.unknown[b.hash] |= 1 << b.group
	}
	m.publishBelow(b, now, true)
}

// dropBelow takes a block, or one of its copies, out of the tier, and reports whether the
// tier had it. model.mu is held.
func (m *Member) dropBelow(b groupHash, all bool) bool {
	t := m.tier
	one, has := t.held[b]
	switch {
	case !has:
		return false
	case one.copies > 0 && !all:
		one.copies--
		t.held[b] = one
		return true
	}
	m.publishBelow(b, one, false)
	delete(t.held, b)
	if one.known {
		t.recent.put(b.hash, one.key) // the connector may store it again
	} else {
		t.known(b)
	}
	m.model.budget.give(1)
	return true
}

// known records that the key of a block is no longer looked for.
func (t *tier) known(b groupHash) {
	if t.unknown[b.hash] &^= 1 << b.group; t.unknown[b.hash] == 0 {
		delete(t.unknown, b.hash)
	}
}

// learnBelow gives the blocks of the tier with a hash their key. model.mu is held.
func (m *Member) learnBelow(hash, key uint64) {
	t := m.tier
	for groups := t.unknown[hash]; groups != 0; groups &= groups - 1 {
		b := groupHash{bits.TrailingZeros32(groups), hash}
		one := t.held[b]
		one.key, one.known = key, true
		t.held[b] = one
		t.known(b)
		m.publishBelow(b, one, true)
	}
}

// publishBelow lets lookups see that the tier has a block, or has it no more. model.mu is
// held.
func (m *Member) publishBelow(b groupHash, one tierBlock, on bool) {
	p := m.joined.Load()
	if p == nil || m.Seat() < 0 || !one.known {
		return
	}
	m.model.tiers.flip(p.rowBelow(b.group, one.key, false), m.Seat(), on)
	if one.doubt {
		m.model.tiers.flip(p.rowBelow(b.group, one.key, true), m.Seat(), on)
	}
}

// publishTier publishes all blocks of the tier, or withdraws them. model.mu is held.
func (m *Member) publishTier(on bool) {
	if m.tier == nil {
		return
	}
	for b, one := range m.tier.held {
		m.publishBelow(b, one, on)
	}
}

// rowBelow returns the key of a group's block in the model's table of tiers.
func (p *Plan) rowBelow(group int, key uint64, doubt bool) uint64 {
	row := uint64(group)<<1 | uint64(p.keying.Unit)<<32
	if doubt {
		row |= 1
	}
	return keyIn(row*hashtable.Golden, key)
}

// updateTier publishes the tier's facts and how reliable the member's answers are.
func (m *Member) updateTier() {
	if *m.tiered.Load() != m.tier.tierFacts {
		f := m.tier.tierFacts
		m.tiered.Store(&f)
	}
	m.updateTrust()
}
