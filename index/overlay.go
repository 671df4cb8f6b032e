package index

import (
	"math/bits"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/prefixhash"
)

// The tables in which a holder's match may continue after its blocks on GPU. They
// have no order, so a lookup walks them; usually few or none have entries.
const (
	inCPU = iota
	inStorage
	inLeases

	layers
)

// overlay is the scratch of a lookup in these tables.
type overlay struct {
	at        [layers]holderset.ID // the sets at one position
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
	id    HolderID
	from  int32
	slots [layers]int32 // by layer, -1 = none
	match int           // index into dst
	ended bool          // the walk has passed its end
}

// probedBits is log2 of how many ends of holders' blocks a lookup remembers. Holders
// interleave, and many holders end in few places.
const probedBits = 4

type probedEnd struct {
	end int32 // 0: none
	any bool  // some holder has the block there, in another table
}

func (ks *keyspace) hasOverlay() bool {
	if ks.lower[TierCPU].Load() != nil || ks.lower[TierStorage].Load() != nil {
		return true
	}
	return ks.leases.Load().Len() > 0
}

// lookupOverlay finishes a lookup in a keyspace that has more than GPU blocks.
func (ks *keyspace) lookupOverlay(r *scratch, f *Found, keys []prefixhash.Key) {
	now := ks.sh.x.expiries.Tick()
	f.write()
	dst := f.list
	r.continued = r.continued[:0]
	r.probed = [1 << probedBits]probedEnd{}
	from := int32(len(keys))
	for i := range dst {
		m := &dst[i]
		if m.HybridUnknown || m.Grouped || int(m.Blocks) == len(keys) || !ks.goesOn(r, m.Blocks, keys, now) {
			continue
		}
		if slot, ok := ks.sh.slots.Of(int32(m.ID)); ok {
			r.continued = append(r.continued, continuation{id: m.ID, from: m.Blocks, slots: ks.slotsOf(m.ID, int32(slot)), match: i})
			from = min(from, m.Blocks)
		}
	}
	if ks.probe(&r.at, keys[0], now) {
		if dst = ks.starting(r, f, dst); len(r.continued) > 0 && r.continued[len(r.continued)-1].from == 0 {
			from = 0
		}
	}
	f.list = dst
	if len(r.continued) == 0 {
		return
	}
	ks.walkOverlay(r, from, keys, now)
	for i := range r.continued {
		c := &r.continued[i]
		m := &dst[c.match]
		m.Blocks = ks.extend(r, c, c.from, inLeases)
		m.Lower = ks.extend(r, c, m.Blocks, inLeases, inCPU)
		m.Storage = ks.extend(r, c, m.Lower, inLeases, inCPU, inStorage)
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
func (ks *keyspace) goesOn(r *scratch, end int32, keys []prefixhash.Key, now uint64) bool {
	p := &r.probed[uint64(end)*hashtable.Golden>>(64-probedBits)]
	if p.end != end {
		*p = probedEnd{end, ks.probe(&r.at, keys[end], now)}
	}
	return p.any
}

// starting appends a match and a continuation for each holder that has the first
// block in another table, by r.at, and not on GPU.
func (ks *keyspace) starting(r *scratch, f *Found, dst []Match) []Match {
	for layer := inCPU; layer < layers; layer++ {
		id := r.at[layer]
		if id == 0 {
			continue
		}
		sets, slots := ks.layer(layer)
		for i := range int(slots.Words()) {
			for w := sets.Word(id, i) & slots.Live.Load(i); w != 0; w &= w - 1 {
				dst = ks.start(r, f, dst, layer, HolderID(slots.Holder(i<<6+bits.TrailingZeros64(w))))
			}
		}
	}
	return dst
}

// start appends them for one holder found in a layer, unless an earlier layer had
// it.
func (ks *keyspace) start(r *scratch, f *Found, dst []Match, layer int, id HolderID) []Match {
	sh := ks.sh
	if f.block > 0 {
		if m := sh.x.memberOf(id, sh.key.modelKey()); m != nil && m.HasEnds(ks.scope.home()) {
			return dst
		}
	}
	m, slot := Match{ID: id, Seen: sh.x.newestBatch(id)}, int32(-1)
	if s, ok := sh.slots.Of(int32(id)); ok {
		if sh.hidden.Has(s) || s>>6 < f.words && f.first[s>>6]>>(s&63)&1 != 0 {
			return dst
		}
		slot = int32(s)
	}
	c := continuation{id: id, match: len(dst), slots: ks.slotsOf(id, slot)}
	for earlier := inCPU; earlier < layer; earlier++ {
		if ks.in(&r.at, &c, earlier) {
			return dst
		}
	}
	r.continued = append(r.continued, c)
	return append(dst, m)
}

// layer returns the sets of a layer, and their slots.
func (ks *keyspace) layer(layer int) (*holderset.Sets, *holderset.Slots) {
	if layer == inLeases {
		l := ks.leases.Load()
		return l.Sets(), l.Slots()
	}
	return &ks.sh.sets, &ks.sh.slots
}

// probe reads the sets of a key in all tables into at, and reports whether any has it.
func (ks *keyspace) probe(at *[layers]holderset.ID, key prefixhash.Key, now uint64) bool {
	any, k := holderset.ID(0), hashtable.KeyOf(uint64(key))
	*at = [layers]holderset.ID{}
	if t := ks.lower[TierCPU].Load(); t != nil {
		at[inCPU] = t.Get(k).Set()
		any |= at[inCPU]
	}
	if t := ks.lower[TierStorage].Load(); t != nil {
		at[inStorage] = t.Get(k).Set()
		any |= at[inStorage]
	}
	if l := ks.leases.Load(); l.Len() > 0 {
		at[inLeases] = l.Get(k, now)
		any |= at[inLeases]
	}
	return any != 0
}

// slotsOf returns a holder's slots in all tables.
func (ks *keyspace) slotsOf(id HolderID, slot int32) (s [layers]int32) {
	s = [layers]int32{inCPU: slot, inStorage: slot, inLeases: -1}
	if l := ks.leases.Load(); l != nil {
		if n, ok := l.Slots().Of(int32(id)); ok {
			s[inLeases] = int32(n)
		}
	}
	return s
}

func (ks *keyspace) in(at *[layers]holderset.ID, c *continuation, layer int) bool {
	id, slot := at[layer], int(c.slots[layer])
	if id == 0 || slot < 0 {
		return false
	}
	if layer == inLeases {
		return ks.leases.Load().Sets().Has(id, slot)
	}
	return ks.sh.sets.Has(id, slot)
}

func (ks *keyspace) inAny(at *[layers]holderset.ID, c *continuation, layers ...int) bool {
	for _, layer := range layers {
		if ks.in(at, c, layer) {
			return true
		}
	}
	return false
}

// walkOverlay collects the runs from a position to the end of every continuation.
func (ks *keyspace) walkOverlay(r *scratch, from int32, keys []prefixhash.Key, now uint64) {
	r.runs = r.runs[:0]
	for p := from; p < int32(len(keys)); p++ {
		ks.probe(&r.at, keys[p], now)
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
		if c.from <= p && !c.ended && !ks.inAny(&r.at, c, inCPU, inStorage, inLeases) {
			c.ended = true
		}
		any = any || !c.ended
	}
	return any
}

// extend returns how far a continuation goes from a position in one of the given tables.
func (ks *keyspace) extend(r *scratch, c *continuation, p int32, also ...int) int32 {
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
