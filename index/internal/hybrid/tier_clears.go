package hybrid

import (
	"cmp"
	"slices"
)

// clears follows the clears of a tier, of which no event tells: AllBlocksCleared is the
// GPU's, and the tier may have been cleared with it, or without it. The connector of Chunks never
// stores one that it has. So if it stores one that the tier seems to have, the tier was cleared:
// at the last AllBlocksCleared if the chunk was stored before it, otherwise since its store.
//
// Until that, or until a replica's count decides (Guess), chunks from before the last
// AllBlocksCleared are in doubt, and count as held.
//
// A clear without an AllBlocksCleared is known only when a chunk is stored again, or when a
// replica counts less than predicted. Which of the chunks stored until then are gone stays
// unknown, until each is stored again or removed. A removal shows that the chunks stored later are
// there.
type clears struct {
	number  uint64 // of the last store or clear
	cleared uint64 // the number of the last AllBlocksCleared
	settled uint64 // stores up to this number are as good as one of this number
	// undecided reports that the last AllBlocksCleared may be the GPU's or the tier's.
	undecided bool
	vague     uint64 // stores up to this number may be of before a clear without an AllBlocksCleared
	order     []tierStore
}

// tierStore is a store, which a later one of the same block makes void.
type tierStore struct {
	block groupHash
	at    uint64
}

func (c *clears) next() uint64 {
	c.number++
	return c.number
}

// compact drops void stores when they are the most.
func (t *tier) compact() {
	if len(t.order) > 2*len(t.held)+64 {
		t.order = slices.DeleteFunc(t.order, func(s tierStore) bool { return t.held[s.block].at != s.at })
	}
}

// provenClear drops what a silent clear has taken, which the store of a held block proves.
// model.mu is held.
func (m *Member) provenClear(held tierBlock) {
	t := m.tier
	through := max(held.at, t.settled)
	switch {
	case through < t.cleared:
		through = t.cleared - 1
	case through > t.vague: // another clear than the last known one
		m.setVague(t.number)
	}
	m.dropThrough(through)
}

// mayBeGone reports whether a block with a store of a number may be gone.
func (t *tier) mayBeGone(at uint64) bool {
	return at <= t.vague || max(at, t.settled) < t.cleared
}

// setVague changes which blocks may be gone because of a clear without an AllBlocksCleared.
// model.mu is held.
func (m *Member) setVague(number uint64) {
	t := m.tier
	was := t.vague
	t.vague = number
	first, _ := slices.BinarySearchFunc(t.order, min(was, number), func(s tierStore, at uint64) int { return cmp.Compare(s.at, at) })
	for _, s := range t.order[first:] {
		if s.at > max(was, number) {
			break
		}
		m.doubtOne(s, t.mayBeGone(s.at))
	}
}

// dropThrough drops the blocks with stores up to a number. model.mu is held.
func (m *Member) dropThrough(number uint64) {
	t := m.tier
	n := 0
	for ; n < len(t.order) && t.order[n].at <= number; n++ {
		if s := t.order[n]; t.held[s.block].at == s.at {
			m.dropBelow(s.block, true)
		}
	}
	t.order = t.order[n:]
}

// ClearBelow drops the blocks of the tier that were stored before the last AllBlocksCleared that
// is in doubt, or with all, all of them.
func (m *Member) ClearBelow(all bool) {
	t := m.tier
	if t == nil {
		return
	}
	m.model.mu.Lock()
	if t.undecided = false; all {
		t.cleared = t.next()
	}
	m.dropThrough(t.cleared)
	m.model.mu.Unlock()
	m.updateTier()
}

// Undecided records an AllBlocksCleared of which it is not known yet whether it is the GPU's or
// the tier's.
func (m *Member) Undecided() {
	if m.tier != nil {
		m.tier.undecided = true
		m.doubtBelow()
	}
}

// Decided records that the last AllBlocksCleared was the GPU's, and whether that is certain.
func (m *Member) Decided(certain bool) {
	if m.tier == nil {
		return
	}
	if m.tier.undecided = false; certain {
		m.settleBelow(true)
	}
	m.updateTier()
}

// doubtBelow puts the blocks of the tier in doubt, if there is one.
func (m *Member) doubtBelow() {
	if m.tier == nil {
		return
	}
	m.model.mu.Lock()
	m.doubtAll()
	m.model.mu.Unlock()
	m.updateTier()
}

// contradicted records that a replica has loaded less than it would if no block of the tier were
// gone: it was cleared without an event.
func (m *Member) contradicted() {
	m.model.mu.Lock()
	m.setVague(m.tier.number)
	m.model.mu.Unlock()
	m.updateTier()
}

// doubtAll puts the blocks of the tier in doubt. model.mu is held.
func (m *Member) doubtAll() {
	t := m.tier
	was, first := t.cleared, 0
	t.cleared = t.next()
	if t.settled < was { // older blocks are in doubt already
		first, _ = slices.BinarySearchFunc(t.order, was, func(s tierStore, at uint64) int { return cmp.Compare(s.at, at) })
	}
	for _, s := range t.order[first:] {
		m.doubtOne(s, true)
	}
}

// doubtOne publishes whether a block may be gone. model.mu is held.
func (m *Member) doubtOne(s tierStore, doubt bool) {
	one, has := m.tier.held[s.block]
	if !has || one.at != s.at || one.doubt == doubt {
		return
	}
	m.publishBelow(s.block, one, false)
	one.doubt = doubt
	m.tier.held[s.block] = one
	m.publishBelow(s.block, one, true)
}

// oldest returns the number of the first store of those whose blocks are held.
func (t *tier) oldest() uint64 {
	for len(t.order) > 0 && t.held[t.order[0].block].at != t.order[0].at {
		t.order = t.order[1:]
	}
	if len(t.order) == 0 {
		return t.number + 1
	}
	return t.order[0].at
}

// doubtful reports whether the tier has blocks that may be gone.
func (t *tier) doubtful() bool { return max(t.oldest(), t.settled) < t.cleared }

// settleBelow ends the doubt: the blocks of before the last AllBlocksCleared are there, or
// are gone.
func (m *Member) settleBelow(kept bool) {
	t := m.tier
	m.model.mu.Lock()
	if kept {
		t.settled = t.cleared
		for _, s := range t.order {
			if s.at > t.cleared {
				break
			}
			m.doubtOne(s, t.mayBeGone(s.at))
		}
	} else {
		m.dropThrough(t.cleared)
	}
	m.model.mu.Unlock()
	m.updateTier()
}
