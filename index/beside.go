package index

import "warmroute/prefixhash"

// The tables that a holder's match may go on in, behind its blocks on GPU.
// They have no order, so they are walked; usually few or none have entries.
const (
	inGPU = iota
	inStranded
	inCPU
	inStorage
	inReported
	inSpeculative
	inLearned

	layers
)

// beside is scratch for them.
type beside struct {
	at    [layers]setID // the sets at one position
	runs  []layerRun
	cands []candidate
	sink  uint64
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
	match int           // index into dst, -1 = not there yet
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
func (sp *space) lookupBeside(r *reader, dst []Match, words int, keys []prefixhash.Key) []Match {
	d := sp.d
	now := d.x.coarse(d.x.o.Now().UnixNano() - 1<<24 + 1) // rounded down
	for i := range words {
		for seat := i << 6; seat < i<<6+64; seat++ {
			if r.first[i]>>(seat&63)&1 == 0 {
				r.ends[seat] = 0
			}
		}
	}
	r.cands = r.cands[:0]
	from := int32(len(keys))
	probed := int32(-1)
	consider := func(id HolderID, seat int32, end int32) int {
		if end == int32(len(keys)) {
			return -1
		}
		if probed != end {
			probed = end
			sp.probe(&r.at, keys[end], now)
		}
		c := candidate{id: id, from: end, match: -1, seats: sp.seatsOf(id, seat)}
		if !sp.inAny(&r.at, &c, inCPU, inStorage, inReported, inSpeculative, inLearned) {
			return -1
		}
		from = min(from, end)
		r.cands = append(r.cands, c)
		return len(r.cands) - 1
	}
	d.seating.each(func(seat int) {
		if seat>>6 >= words {
			return
		}
		id := d.seating.id(seat)
		m := Match{ID: id, Incomplete: d.partial.has(seat), Seen: d.x.seen(id)}
		switch {
		case d.hybrid.has(seat):
			m.HybridUnknown = true
		case d.hidden.has(seat):
			return
		default:
			n := r.ends[seat]
			m.Blocks, m.Reported, m.Lower, m.Storage, m.Learned = n, n, n, n, n
			c := consider(id, int32(seat), n)
			if n == 0 && c < 0 {
				return
			}
			if c >= 0 {
				r.cands[c].match = len(dst)
			}
		}
		dst = append(dst, m)
	})
	sp.leaseOnly(consider)
	if len(r.cands) == 0 {
		return dst
	}
	sp.walkBeside(r, from, keys, now)
	for i := range r.cands {
		c := &r.cands[i]
		if c.match < 0 {
			c.match = sp.matchOf(&dst, c.id)
		}
		m := &dst[c.match]
		m.Reported = sp.extend(r, c, c.from, inReported)
		m.Blocks = sp.extend(r, c, m.Reported, inReported, inSpeculative)
		m.Lower = sp.extend(r, c, m.Blocks, inReported, inSpeculative, inCPU)
		m.Storage = sp.extend(r, c, m.Lower, inReported, inSpeculative, inCPU, inStorage)
		m.Learned = sp.extend(r, c, m.Blocks, inReported, inSpeculative, inLearned)
	}
	return dst
}

// leaseOnly considers the holders that have leases but no reported blocks.
func (sp *space) leaseOnly(consider func(HolderID, int32, int32) int) {
	for kind := range sp.leases {
		l := sp.leases[kind].Load()
		if l == nil || l.held.Load() == 0 {
			continue
		}
		l.seating.each(func(seat int) {
			id := l.seating.id(seat)
			if _, ok := sp.d.seating.seatOf(id); ok {
				return
			}
			for k := range kind { // seen in an earlier kind
				if e := sp.leases[k].Load(); e != nil {
					if _, ok := e.seating.seatOf(id); ok {
						return
					}
				}
			}
			consider(id, -1, 0)
		})
	}
}

// matchOf returns the place of a holder's match, appended when absent.
func (sp *space) matchOf(dst *[]Match, id HolderID) int {
	*dst = append(*dst, Match{ID: id, Seen: sp.d.x.seen(id)})
	return len(*dst) - 1
}

// probe reads the sets of a key in all tables.
func (sp *space) probe(at *[layers]setID, key prefixhash.Key, now uint64) {
	k := keyOf(uint64(key))
	*at = [layers]setID{inGPU: setID(sp.gpu.get(k) & valSet)}
	if t := sp.stranded.Load(); t != nil {
		at[inStranded] = setID(t.get(k) & valSet)
	}
	if t := sp.lower[TierCPU].Load(); t != nil {
		at[inCPU] = setID(t.get(k) & valSet)
	}
	if t := sp.lower[TierStorage].Load(); t != nil {
		at[inStorage] = setID(t.get(k) & valSet)
	}
	for kind := range sp.leases {
		l := sp.leases[kind].Load()
		if l == nil || l.held.Load() == 0 {
			continue
		}
		if v := l.table.get(k); v>>valTick > now {
			at[inReported+kind] = setID(v & valSet)
		}
	}
}

// seatsOf returns a holder's seats in all tables.
func (sp *space) seatsOf(id HolderID, seat int32) (s [layers]int32) {
	s[inGPU], s[inStranded], s[inCPU], s[inStorage] = seat, seat, seat, seat
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

// walkBeside collects the runs from a position to where nobody has anything.
func (sp *space) walkBeside(r *reader, from int32, keys []prefixhash.Key, now uint64) {
	r.runs = r.runs[:0]
	for p := from; p < int32(len(keys)); p++ {
		sp.probe(&r.at, keys[p], now)
		if r.at == [layers]setID{} {
			return
		}
		if n := len(r.runs); n > 0 && r.runs[n-1].ids == r.at {
			r.runs[n-1].to = p + 1
			continue
		}
		r.runs = append(r.runs, layerRun{to: p + 1, ids: r.at})
	}
}

// extend returns how far a candidate goes on from a position on GPU or in one
// of the given tables.
func (sp *space) extend(r *reader, c *candidate, p int32, also ...int) int32 {
	for i := range r.runs {
		run := &r.runs[i]
		if run.to <= p {
			continue
		}
		if !sp.inAny(&run.ids, c, inGPU, inStranded) && !sp.inAny(&run.ids, c, also...) {
			return p
		}
		p = run.to
	}
	return p
}
