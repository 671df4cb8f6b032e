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
// Until that, until one of them is removed, which shows that they were left, or until a replica's
// count decides (Guess), chunks from before the last AllBlocksCleared are in doubt, and count as
// held.
//
// A clear without an AllBlocksCleared is known only when a chunk is stored again, or when a
// replica counts less than predicted. Which of the chunks stored until then are gone stays
// unknown, until each is stored again or removed.
type clears struct {
	number  uint64 // of the last store or clear
	settled uint64 // stores up to this number are as good as one of this number
	vague   uint64 // a clear without an AllBlocksCleared was found then: of older blocks, some may be gone and others not
	order   []tierStore
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
		m.doubt(true)
	}
	m.dropThrough(through)
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
	m.changeTier(func(t *tier) {
		if t.undecided = false; all {
			t.cleared, t.lost = t.next(), false
		}
		m.dropThrough(t.cleared)
	})
}

// Undecided records an AllBlocksCleared of which it is not known yet whether it is the GPU's or
// the tier's.
func (m *Member) Undecided() {
	m.changeTier(func(t *tier) {
		t.undecided = true
		m.doubt(false)
	})
}

// Decided records that the last AllBlocksCleared was the GPU's, and whether that is certain.
func (m *Member) Decided(certain bool) {
	m.changeTier(func(t *tier) {
		if t.undecided = false; certain {
			m.resolve(true)
		}
	})
}

// doubt puts the blocks of the tier in doubt: all may be gone, or if vague, some of them. model.mu is
// held.
func (m *Member) doubt(vague bool) {
	t, first := m.tier, 0
	if was := max(t.cleared, t.vague); t.settled < was { // older blocks are in doubt already
		first, _ = slices.BinarySearchFunc(t.order, was, func(s tierStore, at uint64) int { return cmp.Compare(s.at, at) })
	}
	if now := t.next(); vague {
		t.vague = now
	} else {
		t.cleared = now
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
	one.doubt = doubt
	m.tier.held[s.block] = one
	if p := m.joined.Load(); p != nil && m.Seat() >= 0 && one.known {
		m.model.tiers.flip(p.rowBelow(s.block.group, one.key, true), m.Seat(), doubt)
	}
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
func (t *tier) doubtful() bool { return max(t.oldest(), t.settled) < max(t.cleared, t.vague) }

// resolve ends the doubt: the blocks of before the last AllBlocksCleared are there, or are gone.
// model.mu is held.
func (m *Member) resolve(kept bool) {
	t := m.tier
	if !kept {
		m.dropThrough(t.cleared)
		return
	}
	t.settled = t.cleared
	for _, s := range t.order {
		if s.at > t.cleared {
			break
		}
		m.doubtOne(s, false)
	}
}
