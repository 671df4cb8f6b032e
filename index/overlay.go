package index

import (
	"math/bits"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/prefixhash"
)

// overlay is the scratch of a lookup in the tables in which a holder's match may continue after its
// blocks on GPU. They have no order, so a lookup walks them; usually few or none have entries.
type overlay struct {
	at        [layers]holderset.ID // the sets at one position, by tier
	runs      []layerRun
	continued []continuation
	probed    [1 << probedBits]probedEnd
}

// layerRun is a stretch of blocks with equal sets in all tables.
type layerRun struct {
	to  int32 // first position behind it
	ids [layers]holderset.ID
}

// continuation is a holder that has the block behind its gapless blocks in another
// table.
type continuation struct {
	from  int32
	slot  int
	match int  // index into dst
	ended bool // the walk has passed its end
}

// probedBits is log2 of how many ends of holders' blocks a lookup remembers. Holders
// interleave, and many holders end in few places.
const probedBits = 4

type probedEnd struct {
	end int32 // 0: none
	any bool  // some holder has the block there, in another table
}

func (ks *keyspace) hasOverlay() bool {
	for i := range ks.lower {
		if ks.lower[i].Load() != nil {
			return true
		}
	}
	return false
}

// lookupOverlay finishes a lookup in a keyspace that has more than GPU blocks.
func (ks *keyspace) lookupOverlay(r *scratch, f *Found, keys []prefixhash.Key) {
	f.write()
	dst := f.list
	r.continued = r.continued[:0]
	r.probed = [1 << probedBits]probedEnd{}
	from := int32(len(keys))
	for i := range dst {
		m := &dst[i]
		if m.HybridUnknown || m.Grouped || int(m.Blocks) == len(keys) || !ks.goesOn(r, m.Blocks, keys) {
			continue
		}
		if slot, ok := ks.sh.slots.Of(int32(m.ID)); ok {
			r.continued = append(r.continued, continuation{from: m.Blocks, slot: slot, match: i})
			from = min(from, m.Blocks)
		}
	}
	if ks.probe(&r.at, keys[0]) {
		if dst = ks.starting(r, f, dst); len(r.continued) > 0 && r.continued[len(r.continued)-1].from == 0 {
			from = 0
		}
	}
	f.list = dst
	if len(r.continued) == 0 {
		return
	}
	ks.walkOverlay(r, from, keys)
	for i := range r.continued {
		c := &r.continued[i]
		m := &dst[c.match]
		m.Blocks = ks.extend(r, c, c.from, tierLeased)
		m.Lower = ks.extend(r, c, m.Blocks, tierLeased, TierCPU)
		m.Storage = ks.extend(r, c, m.Lower, tierLeased, TierCPU, TierStorage)
		ks.loaded(m)
	}
}

// loaded works out what a holder loads from CPU memory if its settings tell by which rule: too
// few tokens are not worth it.
func (ks *keyspace) loaded(m *Match) {
	member := ks.sh.x.memberOf(m.ID, ks.sh.key.modelKey())
	if member == nil {
		return
	}
	least, ok := member.Loads()
	if !ok {
		return
	}
	m.Storage = m.Lower
	if rest := (m.Lower - m.Blocks) * int32(ks.scope.BlockSize); rest > 0 && rest >= least {
		m.Loaded = rest
		return
	}
	m.Lower, m.Storage = m.Blocks, m.Blocks
}

// goesOn reports whether some holder has the block at end in another table.
func (ks *keyspace) goesOn(r *scratch, end int32, keys []prefixhash.Key) bool {
	p := &r.probed[uint64(end)*hashtable.Golden>>(64-probedBits)]
	if p.end != end {
		*p = probedEnd{end, ks.probe(&r.at, keys[end])}
	}
	return p.any
}

// starting appends a match and a continuation for each holder that has the first
// block in another table, by r.at, and not on GPU.
func (ks *keyspace) starting(r *scratch, f *Found, dst []Match) []Match {
	slots := &ks.sh.slots
	for i := range int(slots.Words()) {
		some := uint64(0)
		for _, id := range r.at {
			some |= ks.sh.sets.Word(id, i)
		}
		if i < f.words {
			some &^= f.first[i]
		}
		for w := some & slots.Live.Load(i) &^ ks.sh.hidden.Load(i); w != 0; w &= w - 1 {
			dst = ks.start(r, f, dst, i<<6+bits.TrailingZeros64(w))
		}
	}
	return dst
}

// start appends them for one slot.
func (ks *keyspace) start(r *scratch, f *Found, dst []Match, slot int) []Match {
	sh := ks.sh
	id := HolderID(sh.slots.Holder(slot))
	if f.block > 0 {
		if m := sh.x.memberOf(id, sh.key.modelKey()); m != nil && m.HasEnds(ks.scope.home()) {
			return dst
		}
	}
	r.continued = append(r.continued, continuation{slot: slot, match: len(dst)})
	return append(dst, Match{ID: id, Seen: sh.x.newestBatch(id)})
}

// probe reads the sets of a key in all tables into at, and reports whether any has it.
func (ks *keyspace) probe(at *[layers]holderset.ID, key prefixhash.Key) bool {
	any := holderset.ID(0)
	for i := range ks.lower {
		at[i] = 0
		if t := ks.lower[i].Load(); t != nil {
			at[i] = t.Get(hashtable.KeyOf(uint64(key)))
			any |= at[i]
		}
	}
	return any != 0
}

func (ks *keyspace) inAny(at *[layers]holderset.ID, c *continuation, tiers ...Tier) bool {
	for _, tier := range tiers {
		if ks.sh.sets.Has(at[tier], c.slot) {
			return true
		}
	}
	return false
}

// walkOverlay collects the runs from a position to the end of every continuation.
func (ks *keyspace) walkOverlay(r *scratch, from int32, keys []prefixhash.Key) {
	r.runs = r.runs[:0]
	for p := from; p < int32(len(keys)); p++ {
		ks.probe(&r.at, keys[p])
		if n := len(r.runs); n > 0 && r.runs[n-1].ids == r.at {
			r.runs[n-1].to = p + 1
			continue
		}
		if !ks.anyAt(r, p) {
			return
		}
		r.runs = append(r.runs, layerRun{to: p + 1, ids: r.at})
	}
}

// anyAt reports whether a continuation starts after p, or has the block at p, which
// is r.at, and all before it.
func (ks *keyspace) anyAt(r *scratch, p int32) (any bool) {
	for i := range r.continued {
		c := &r.continued[i]
		if c.from <= p && !c.ended && !ks.inAny(&r.at, c, TierCPU, TierStorage, tierLeased) {
			c.ended = true
		}
		any = any || !c.ended
	}
	return any
}

// extend returns how far a continuation goes from a position in one of the given tables.
func (ks *keyspace) extend(r *scratch, c *continuation, p int32, also ...Tier) int32 {
	for i := range r.runs {
		run := &r.runs[i]
		if run.to <= p {
			continue
		}
		if !ks.inAny(&run.ids, c, also...) {
			return p
		}
		p = run.to
	}
	return p
}
