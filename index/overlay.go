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
	continued []continuation
	probed    [1 << probedBits]probedEnd
}

// levels are the tables in which a match continues: as long as blocks are leased, then also in CPU
// memory, then also in storage.
var levels = [...]Tier{tierLeased, TierCPU, TierStorage}

// continuation is a holder that has the block behind its gapless blocks in another
// table.
type continuation struct {
	from  int32
	slot  int
	match int // index into dst
	level int // the tables up to this one are needed for the blocks so far
	ends  [len(levels)]int32
}

// need ends the match at a position in the tables before a level.
func (c *continuation) need(level int, p int32) {
	for ; c.level < level; c.level++ {
		c.ends[c.level] = p
	}
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
	for i := range dst {
		m := &dst[i]
		if m.Grouped || int(m.Blocks) == len(keys) || !ks.goesOn(r, m.Blocks, keys) {
			continue
		}
		if slot, ok := ks.sh.slots.Of(int32(m.ID)); ok {
			r.continued = append(r.continued, continuation{from: m.Blocks, slot: slot, match: i})
		}
	}
	if ks.probe(&r.at, keys[0]) {
		dst = ks.starting(r, f, dst)
	}
	f.list = dst
	if len(r.continued) == 0 {
		return
	}
	ks.walkOverlay(r, keys)
	for i := range r.continued {
		c := &r.continued[i]
		c.need(len(levels), int32(len(keys)))
		m := &dst[c.match]
		m.Blocks, m.Lower, m.Storage = c.ends[0], c.ends[1], c.ends[2]
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
		if m := sh.x.memberOf(id, sh.key.modelKey()); m != nil && m.HasOthers(ks.scope.home()) {
			return dst
		}
	}
	r.continued = append(r.continued, continuation{slot: slot, match: len(dst)})
	return append(dst, Match{ID: id})
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

// walkOverlay finds where the continuations end. Nothing changes at a position with the sets of the
// one before, unless a continuation begins there.
func (ks *keyspace) walkOverlay(r *scratch, keys []prefixhash.Key) {
	next := int32(len(keys)) // the first position at which a continuation begins
	for i := range r.continued {
		next = min(next, r.continued[i].from)
	}
	var at [layers]holderset.ID
	for p := next; p < int32(len(keys)); p++ {
		ks.probe(&at, keys[p])
		if p < next && at == r.at {
			continue
		}
		r.at, next = at, int32(len(keys))
		open := false
		for i := range r.continued {
			c := &r.continued[i]
			if c.from > p {
				next, open = min(next, c.from), true
				continue
			}
			c.need(ks.levelAt(&at, c.slot), p)
			open = open || c.level < len(levels)
		}
		if !open {
			return
		}
	}
}

// levelAt returns the first level that has the block at one position for a slot.
func (ks *keyspace) levelAt(at *[layers]holderset.ID, slot int) int {
	for level, tier := range levels {
		if ks.sh.sets.Has(at[tier], slot) {
			return level
		}
	}
	return len(levels)
}
