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
			one := l.belowAt(g, seat)
			any = any || one.host > 0 || one.device < int(l.device[seat])
			for w, agree := range l.tier.agree {
				l.todo[w] &^= agree
				for ; agree != 0; agree &= agree - 1 {
					at := w<<6 + bits.TrailingZeros64(agree)
					l.device[at], l.loaded[at] = int32(one.device), int32(one.host)
				}
			}
		}
	}
	if any {
		l.index.Loaded(l.members, l.device, l.loaded)
	}
}

// belowAt returns what the member in a seat takes and loads. The members in l.tier.agree load as
// much.
func (l *Lookup) belowAt(g *Model, seat int) load {
	m, agree := l.members[seat], append(l.tier.agree[:0], l.todo...)
	p, f := m.joined.Load(), m.tiered.Load()
	if p == nil || f == nil {
		clear(agree)
		agree[seat>>6] = 1 << (seat & 63)
		l.tier.agree = agree
		return load{device: int(l.device[seat])}
	}
	for w := range agree {
		agree[w] = l.same(w, p, f, l.device[seat])
	}
	agree[seat>>6] |= 1 << (seat & 63) // also if it was published anew meanwhile
	l.tier = tierProber{table: &g.tiers, plan: p, keys: l.keys(p.keying), seat: seat, agree: agree}
	device := int(l.device[seat])
	if f.undecided {
		device = 0
	}
	return p.layout.load(f, p.assumed, l.query.Tokens, device, &l.tier)
}

// same returns the seats of a word, as bits, whose members are looked up alike: with a plan,
// with a connector, and behind so many tokens on the GPU.
func (l *Lookup) same(word int, p *Plan, f *tierFacts, device int32) (seats uint64) {
	for left := l.todo[word]; left != 0; left &= left - 1 {
		bit := bits.TrailingZeros64(left)
		m := l.members[word<<6+bit]
		if of := m.tiered.Load(); of != nil && m.joined.Load() == p && of.by == f.by && of.chunk == f.chunk && of.undecided == f.undecided && l.device[word<<6+bit] == device {
			seats |= 1 << bit
		}
	}
	return seats
}

// Guess is how many tokens of a prompt a member with a tier has on its GPU, and has there and
// loads if all blocks of its tier are there, or none that may be gone. Answered compares it with
// the replica's count.
type Guess struct {
	device, kept, sure int
	cleared            uint64 // tierFacts.cleared
}

// Any reports whether the prompt is expected to hit anything.
func (g *Guess) Any() bool { return g.kept > 0 }

// Differ reports whether the count shows if blocks are gone.
func (g *Guess) Differ() bool { return g.kept != g.sure }

// Guess returns a member's guess; it is empty without a tier, or if keys of the prompt are
// missing: it would seem to hit too little. Guess takes no lock.
func (l *Lookup) Guess(m *Member, q *Query, index Index) (g Guess) {
	p, f := m.current(), m.tiered.Load()
	if p == nil || f == nil {
		return g
	}
	b := l.aimAt(m, p, q, index)
	if c := p.keying; c.Unit <= 0 || len(b.keys) >= (q.Tokens-1-c.Ahead)/c.Unit {
		g = l.guessBelow(f, q.Tokens)
	}
	l.end()
	return g
}

// guessBelow guesses for the member that the prober probes.
func (l *Lookup) guessBelow(f *tierFacts, n int) Guess {
	b, p, t := &l.prober, l.prober.plan, &l.tier
	*t = tierProber{table: &b.model.tiers, plan: p, keys: b.keys, seat: b.seat, agree: t.agree[:0]}
	g := Guess{device: p.hit(n, b), cleared: f.cleared}
	g.kept = p.layout.load(f, p.assumed, n, g.device, t).tokens()
	t.sure = true
	g.sure = p.layout.load(f, p.assumed, n, g.device, t).tokens()
	return g
}

// Answered settles by a replica's count for the prompt of a Guess whether the blocks that may be
// gone are there. A count that is less than both possible ones tells something only if the replica
// was alone with the prompt; otherwise another one may have evicted blocks before the lookup.
func (m *Member) Answered(g *Guess, reported int, alone bool) {
	t := m.tier
	switch {
	case t == nil:
	case g.cleared != t.cleared, t.by == Singles: // the count is the same if the GPU has the blocks
	case alone && g.device <= reported && reported < g.sure:
		m.changeTier(func(*tier) { m.doubt(true) }) // it was cleared without an event
	case g.kept == g.sure, t.oldest() <= t.vague: // some blocks may be there, and others not
	case reported == g.sure, reported == g.kept:
		m.changeTier(func(*tier) { m.resolve(reported == g.kept) })
	}
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
	has := b.table.probe(b.plan.rowBelow(group, key, false), b.seat, b.agree)
	return has && !(b.sure && b.table.probe(b.plan.rowBelow(group, key, true), b.seat, nil))
}

// Run implements Prober.
func (b *tierProber) Run(spec, end int) (held bool, from int) {
	for _, group := range b.plan.layout.Specs[spec].Groups {
		if !b.has(group, b.from+end) {
			return false, end - 1
		}
	}
	return true, end - 1
}

// Depth implements Prober.
func (b *tierProber) Depth(spec, limit int) int {
	return depthOf(b, spec, b.plan.layout.Specs[spec].Block, limit)
}
