package hybrid

import (
	"math/bits"
	"slices"

	"warmroute/prefixhash"
)

// below finds how much of the prompt members load from their tiers, behind what they have
// been found to take from the GPU. It evaluates the connector's rule for one member, and gives
// the result to all members for which every probe has the same result.
func (l *Lookup) below(g *Model, r *roster) {
	if len(r.tiered) == 0 {
		return
	}
	n := len(l.members)
	l.device, l.loaded = slices.Grow(l.device[:0], n)[:n], slices.Grow(l.loaded[:0], n)[:n]
	clear(l.device)
	clear(l.loaded)
	l.index.Hits(l.device)
	any := false
	l.todo = append(l.todo[:0], r.tiered...)
	for i := range l.todo {
		for l.todo[i] != 0 {
			seat := i<<6 + bits.TrailingZeros64(l.todo[i])
			loaded := l.belowAt(g, seat)
			any = any || loaded > 0
			for w, agree := range l.tier.agree {
				l.todo[w] &^= agree
				for ; agree != 0; agree &= agree - 1 {
					l.loaded[w<<6+bits.TrailingZeros64(agree)] = loaded
				}
			}
		}
	}
	if any {
		l.index.Loaded(l.members, l.loaded)
	}
}

// belowAt returns what the member in a seat loads. The members in l.tier.agree load as much.
func (l *Lookup) belowAt(g *Model, seat int) (loaded int32) {
	m, agree := l.members[seat], append(l.tier.agree[:0], l.todo...)
	p, f := m.joined.Load(), m.tiered.Load()
	if p == nil || f == nil {
		clear(agree)
		agree[seat>>6] = 1 << (seat & 63)
		l.tier.agree = agree
		return 0
	}
	for w := range agree {
		agree[w] = l.same(w, p, f, l.device[seat])
	}
	agree[seat>>6] |= 1 << (seat & 63) // also if it was published anew meanwhile
	l.tier = tierProber{table: &g.tiers, plan: p, keys: l.keys(p.keying), seat: seat, agree: agree}
	return int32(p.layout.loaded(*f, l.query.Tokens, int(l.device[seat]), &l.tier))
}

// same returns the seats of a word, as bits, whose members are looked up alike: with a plan,
// with a connector, and behind so many tokens on the GPU.
func (l *Lookup) same(word int, p *Plan, f *tierFacts, device int32) (seats uint64) {
	for left := l.todo[word]; left != 0; left &= left - 1 {
		bit := bits.TrailingZeros64(left)
		m := l.members[word<<6+bit]
		if of := m.tiered.Load(); of != nil && m.joined.Load() == p && of.by == f.by && of.chunk == f.chunk && l.device[word<<6+bit] == device {
			seats |= 1 << bit
		}
	}
	return seats
}

// belowGuess is what a member takes of a prompt from its GPU, and what it loads from its tier
// if all blocks are there, or none that may be gone.
type belowGuess struct {
	guessed            bool
	device, kept, sure int
	cleared            uint64 // tierFacts.cleared
}

// guessBelow guesses for the member that the prober probes.
func (l *Lookup) guessBelow(f *tierFacts, n int) belowGuess {
	b, p, t := &l.prober, l.prober.plan, &l.tier
	*t = tierProber{table: &b.model.tiers, plan: p, keys: b.keys, seat: b.seat, agree: t.agree[:0]}
	g := belowGuess{guessed: true, device: p.layout.Hit(n, p.assumed, b), cleared: f.cleared}
	g.kept = p.layout.loaded(*f, n, g.device, t)
	t.sure = true
	g.sure = p.layout.loaded(*f, n, g.device, t)
	return g
}

// learnTier settles by a replica's count whether the blocks that may be gone are there. It
// reports whether the count is of blocks on GPU alone.
func (m *Member) learnTier(g *belowGuess, reported int) (device bool) {
	if !g.guessed {
		return true // the replica's counters are of the GPU
	}
	if g.kept != g.sure && g.cleared == m.tier.cleared {
		switch reported {
		case g.device + g.sure:
			m.settleBelow(false)
		case g.device + g.kept:
			m.settleBelow(true)
		}
	}
	return g.kept == 0 && g.sure == 0
}

// tierProber probes the tier of the member in a seat. As a Prober, it probes the part of the
// prompt behind its first tokens.
type tierProber struct {
	table *table
	plan  *Plan
	keys  []prefixhash.Key
	seat  int
	sure  bool     // blocks that may be gone do not count
	from  int      // the first tokens
	agree []uint64 // the seats of members with equal results of all probes, as bits
}

// has reports whether the tier has the block of a group that ends after end tokens.
func (b *tierProber) has(group, end int) bool {
	unit := b.plan.keying.Unit
	at := end / unit
	if end%unit != 0 || at < 1 || at > len(b.keys) {
		return false
	}
	key := uint64(b.keys[at-1])
	set := b.table.get(b.plan.rowBelow(group, key, false))
	has := set.has(b.seat)
	for w := range b.agree {
		if has {
			b.agree[w] &= set.word(w)
		} else {
			b.agree[w] &^= set.word(w)
		}
	}
	return has && !(b.sure && b.table.get(b.plan.rowBelow(group, key, true)).has(b.seat))
}

// Held implements Prober.
func (b *tierProber) Held(spec, end int) bool {
	for _, group := range b.plan.layout.Specs[spec].Groups {
		if !b.has(group, b.from+end) {
			return false
		}
	}
	return true
}

// Depth implements Prober.
func (b *tierProber) Depth(spec, limit int) int {
	for k := range limit {
		if !b.Held(spec, (k+1)*b.plan.layout.Specs[spec].Block) {
			return k
		}
	}
	return limit
}
