package index

import (
	"math/bits"

	"warmroute/prefixhash"
)

// The tables that a holder's match may go on in, behind its blocks on GPU.
// They have no order, so they are walked; usually few or none have entries.
const (
	inStranded = iota
	inCPU
	inStorage
	inReported
	inSpeculative
	inLearned

	layers
)

// beside is scratch for them.
type beside struct {
	at     [layers]setID // the sets at one position
	runs   []layerRun
	cands  []candidate
	probed [1 << probedBits]probedEnd
}

// layerRun is a stretch of blocks with equal sets in all tables.
type layerRun struct {
	to  int32 // first position behind it
	ids [layers]setID
}

// candidate is a holder that has the block behind its gapless blocks elsewhere.
type candidate struct {
	id    HolderID
	from  int32
	seats [layers]int32 // by layer, -1 = none
	match int           // index into dst
	ended bool          // the walk has passed its end
}

// probedBits is log2 of how many places are remembered where blocks of holders
// end. Holders interleave, and few places are the ends of many.
const probedBits = 4

type probedEnd struct {
	end int32 // 0: none
	any bool  // somebody has the block there, elsewhere
}

func (sp *space) hasBeside() bool {
	if sp.lower[TierCPU].Load() != nil || sp.lower[TierStorage].Load() != nil {
		return true
	}
	for i := range sp.leases {
		if l := sp.leases[i].Load(); l != nil && l.held.Load() > 0 {
			return true
		}
	}
	return false
}

// lookupBeside finishes a lookup in a space that has more than GPU blocks.
func (sp *space) lookupBeside(r *reader, f *Found, keys []prefixhash.Key) {
	now := sp.d.x.coarse(sp.d.x.o.Now().UnixNano() - 1<<24 + 1) // rounded down
	f.list = f.AppendTo(f.list[:0])
	f.listed = true
	dst := f.list
	r.cands = r.cands[:0]
	r.probed = [1 << probedBits]probedEnd{}
	from := int32(len(keys))
	for i := range dst {
		m := &dst[i]
		if m.HybridUnknown || int(m.Blocks) == len(keys) || !sp.goesOn(r, m.Blocks, keys, now) {
			continue
		}
		if seat, ok := sp.d.seating.seatOf(m.ID); ok {
			r.cands = append(r.cands, candidate{id: m.ID, from: m.Blocks, seats: sp.seatsOf(m.ID, int32(seat)), match: i})
			from = min(from, m.Blocks)
		}
	}
	if r.at = ([layers]setID{}); sp.probeBeside(&r.at, keyOf(uint64(keys[0])), now) {
		if dst = sp.starting(r, f, dst); len(r.cands) > 0 && r.cands[len(r.cands)-1].from == 0 {
			from = 0
		}
	}
	f.list = dst
	if len(r.cands) == 0 {
		return
	}
	sp.walkBeside(r, from, keys, now)
	for i := range r.cands {
		c := &r.cands[i]
		m := &dst[c.match]
		m.Reported = sp.extend(r, c, c.from, inReported)
		m.Blocks = sp.extend(r, c, m.Reported, inReported, inSpeculative)
		m.Lower = sp.extend(r, c, m.Blocks, inReported, inSpeculative, inCPU)
		m.Storage = sp.extend(r, c, m.Lower, inReported, inSpeculative, inCPU, inStorage)
		m.Learned = sp.extend(r, c, m.Blocks, inReported, inSpeculative, inLearned)
	}
}

// goesOn says whether somebody has the block at end elsewhere.
func (sp *space) goesOn(r *reader, end int32, keys []prefixhash.Key, now uint64) bool {
	p := &r.probed[uint64(end)*golden>>(64-probedBits)]
	if p.end != end {
		var at [layers]setID
		*p = probedEnd{end, sp.probeBeside(&at, keyOf(uint64(keys[end])), now)}
	}
	return p.any
}

// starting appends a match and a candidate for each holder that has the first
// block elsewhere, by r.at, and not on GPU.
func (sp *space) starting(r *reader, f *Found, dst []Match) []Match {
	for layer := inCPU; layer < layers; layer++ {
		id := r.at[layer]
		if id == 0 {
			continue
		}
		sets, seating := sp.layer(layer)
		for i := range int(seating.words.Load()) {
			for w := sets.word(id, i) & seating.live.load(i); w != 0; w &= w - 1 {
				dst = sp.start(r, f, dst, layer, seating.id(i<<6+bits.TrailingZeros64(w)))
			}
		}
	}
	return dst
}

// start does so for one holder found in a layer, unless an earlier one had it.
func (sp *space) start(r *reader, f *Found, dst []Match, layer int, id HolderID) []Match {
	d := sp.d
	m, seat := Match{ID: id, Seen: d.x.seen(id)}, int32(-1)
	if s, ok := d.seating.seatOf(id); ok {
		if d.hidden.has(s) || s>>6 < f.words && f.first[s>>6]>>(s&63)&1 != 0 {
			return dst
		}
		seat, m.Incomplete = int32(s), d.partial.has(s)
	}
	c := candidate{id: id, match: len(dst), seats: sp.seatsOf(id, seat)}
	for earlier := inCPU; earlier < layer; earlier++ {
		if sp.in(&r.at, &c, earlier) {
			return dst
		}
	}
	r.cands = append(r.cands, c)
	return append(dst, m)
}

// layer is what the sets of a layer are made of.
func (sp *space) layer(layer int) (*sets, *seating) {
	if layer >= inReported {
		l := sp.leases[layer-inReported].Load()
		return &l.sets, &l.seating
	}
	return &sp.d.sets, &sp.d.seating
}

// probe reads the sets of a key in all tables.
func (sp *space) probe(at *[layers]setID, key prefixhash.Key, now uint64) {
	k := keyOf(uint64(key))
	*at = [layers]setID{}
	if t := sp.stranded.Load(); t != nil {
		at[inStranded] = setID(t.get(k) & valSet)
	}
	sp.probeBeside(at, k, now)
}

// probeBeside reads the sets of a key in the tables that a match may go on in,
// into an empty at, and says whether one has it.
func (sp *space) probeBeside(at *[layers]setID, k uint64, now uint64) bool {
	any := setID(0)
	if t := sp.lower[TierCPU].Load(); t != nil {
		at[inCPU] = setID(t.get(k) & valSet)
		any |= at[inCPU]
	}
	if t := sp.lower[TierStorage].Load(); t != nil {
		at[inStorage] = setID(t.get(k) & valSet)
		any |= at[inStorage]
	}
	for kind := range sp.leases {
		l := sp.leases[kind].Load()
		if l == nil || l.held.Load() == 0 {
			continue
		}
		if v := l.table.get(k); v>>valTick > now {
			at[inReported+kind] = setID(v & valSet)
			any |= at[inReported+kind]
		}
	}
	return any != 0
}

// seatsOf returns a holder's seats in all tables.
func (sp *space) seatsOf(id HolderID, seat int32) (s [layers]int32) {
	s[inStranded], s[inCPU], s[inStorage] = seat, seat, seat
	for kind := range sp.leases {
		s[inReported+kind] = -1
		if l := sp.leases[kind].Load(); l != nil {
			if n, ok := l.seating.seatOf(id); ok {
				s[inReported+kind] = int32(n)
			}
		}
	}
	return s
}

func (sp *space) in(at *[layers]setID, c *candidate, layer int) bool {
	id, seat := at[layer], int(c.seats[layer])
	if id == 0 || seat < 0 {
		return false
	}
	if layer >= inReported {
		return sp.leases[layer-inReported].Load().sets.has(id, seat)
	}
	return sp.d.sets.has(id, seat)
}

func (sp *space) inAny(at *[layers]setID, c *candidate, layers ...int) bool {
	for _, layer := range layers {
		if sp.in(at, c, layer) {
			return true
		}
	}
	return false
}

// walkBeside collects the runs from a position to where no candidate goes on.
func (sp *space) walkBeside(r *reader, from int32, keys []prefixhash.Key, now uint64) {
	r.runs = r.runs[:0]
	for p := from; p < int32(len(keys)); p++ {
		sp.probe(&r.at, keys[p], now)
		if n := len(r.runs); n > 0 && r.runs[n-1].ids == r.at {
			r.runs[n-1].to = p + 1
			continue
		}
		if !sp.anyAt(r, p) {
			return
		}
		r.runs = append(r.runs, layerRun{to: p + 1, ids: r.at})
	}
}

// anyAt says whether a candidate starts behind p, or has its block, which is r.at,
// and all before it.
func (sp *space) anyAt(r *reader, p int32) (any bool) {
	for i := range r.cands {
		c := &r.cands[i]
		if c.from <= p && !c.ended && !sp.inAny(&r.at, c, inStranded, inCPU, inStorage, inReported, inSpeculative, inLearned) {
			c.ended = true
		}
		any = any || !c.ended
	}
	return any
}

// extend returns how far a candidate goes on from a position, stranded or in one
// of the given tables.
func (sp *space) extend(r *reader, c *candidate, p int32, also ...int) int32 {
	for i := range r.runs {
		run := &r.runs[i]
		if run.to <= p {
			continue
		}
		if !sp.in(&run.ids, c, inStranded) && !sp.inAny(&run.ids, c, also...) {
			return p
		}
		p = run.to
	}
	return p
}
