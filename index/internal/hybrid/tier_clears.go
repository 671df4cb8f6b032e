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
type clears struct {
	number  uint64 // of the last store or clear
	cleared uint64 // the number of the last AllBlocksCleared
	settled uint64 // stores up to this number are as good as one of this number
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
	if through < t.cleared {
		through = t.cleared - 1
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

// clearedBelow records an AllBlocksCleared, the nth of its batch. The connector of Singles
// sends a second one for the tier; if it sends one alone, that may be for either.
func (m *Member) clearedBelow(nth int) {
	t := m.tier
	if t == nil {
		return
	}
	m.model.mu.Lock()
	if t.by == Singles && nth > 1 {
		m.dropThrough(t.number)
	} else {
		m.doubtAll()
	}
	m.model.mu.Unlock()
	m.updateTier()
}

// doubtAll puts the blocks of the tier in doubt. model.mu is held.
func (m *Member) doubtAll() {
	t := m.tier
	was, first := t.cleared, 0
	t.cleared = t.next()
	if t.settled < was { // what was stored before is in doubt already
		first, _ = slices.BinarySearchFunc(t.order, was, func(s tierStore, at uint64) int { return cmp.Compare(s.at, at) })
	}
	for _, s := range t.order[first:] {
		m.doubtBelow(s, true)
	}
}

// doubtBelow publishes whether a block may be gone. model.mu is held.
func (m *Member) doubtBelow(s tierStore, doubt bool) {
	one, has := m.tier.held[s.block]
	if !has || one.at != s.at || one.doubt == doubt {
		return
	}
	m.publishBelow(s.block, one, false)
	one.doubt = doubt
	m.tier.held[s.block] = one
	m.publishBelow(s.block, one, true)
}

// doubtful reports whether the tier has blocks that may be gone.
func (t *tier) doubtful() bool {
	for len(t.order) > 0 && t.held[t.order[0].block].at != t.order[0].at {
		t.order = t.order[1:]
	}
	return len(t.order) > 0 && max(t.order[0].at, t.settled) < t.cleared
}

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
			m.doubtBelow(s, false)
		}
	} else {
		m.dropThrough(t.cleared)
	}
	m.model.mu.Unlock()
	m.updateTier()
}
