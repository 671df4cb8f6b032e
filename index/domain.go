package index

import (
	"slices"
	"sync"
	"sync/atomic"

	"warmroute/prefixhash"
)

// domainKey is what engine hashes are resolved in: removals name no adapter and
// no block size, but the cache group.
type domainKey struct {
	tenant, model string
	group         int
}

// domain is the scopes of one model's cache group. One lock serialises its
// writers; lookups never take it.
type domain struct {
	x   *Index
	key domainKey

	seating seating
	hybrid  mask // seats whose full-attention group is not known
	hidden  mask // seats that must not match here: hybrid, or another group is the full one
	partial mask // seats whose blocks were evicted from the index

	mu      sync.Mutex
	sets    sets
	stems   stems
	spaces  []*space
	info    []seatInfo // by seat
	copies  map[copyKey]uint32
	orphans orphans

	unsettled int // blocks stored since tables were settled
	evicted   int // blocks below the GPU, since names were last compared with them

	event          run // what the writer is at, and its scratch
	keys           []uint64
	joined         []*parked
	old, out, bare []level
	sink           uint64 // keeps touches from being optimised away
}

// seatInfo is what the writer knows of a holder's blocks.
type seatInfo struct {
	holder *holder
	blocks [tiers]int // held

	lane     lane          // where the blocks are that it has with all before them, by its names for them
	odd      dict          // of them, those whose names are not their stems'
	kids     dict          // by pos: stems behind that block of which it has the first block
	lower    map[int]*dict // keys of what it has below the GPU, by its names, by space
	stranded map[uint64]strandedBlock
	behind   map[spaceKey][]uint64 // names of stranded blocks by their parents
}

// find is where a block is that the holder has with all before it, by its name;
// 0 when there is none.
func (i *seatInfo) find(s *stems, name uint64) pos {
	if _, p := i.lane.find(s, name); p != 0 || i.odd.used == 0 {
		return p
	}
	return pos(i.odd.get(name))
}

// take forgets a name, and says where its block is.
func (i *seatInfo) take(s *stems, name uint64) pos {
	at, p := i.lane.find(s, name)
	if p != 0 {
		i.lane.del(at)
		return p
	}
	if k := i.odd.find(name); k >= 0 {
		p = pos(i.odd.slots[k].val)
		i.odd.del(k)
	}
	return p
}

// eachName calls f for every such block.
func (i *seatInfo) eachName(s *stems, f func(name uint64, p pos)) {
	eachPos(i.lane.buckets, func(p pos) { f(s.at(p.stem()).name(p.off()), p) })
	i.odd.each(func(_ int, name, p uint64) { f(name, pos(p)) })
}

// maxSpaces is how many scopes a stem can tell apart.
const maxSpaces = 1 << 16

// copyKey names a block a holder has more than once; the value counts the
// copies beyond the first.
type copyKey struct {
	space, seat int32
	tier        Tier
	key         uint64
}

// space is one scope's blocks.
//
// Stems have, for each holder, only blocks whose predecessors it also holds, so
// that along a chain the sets only shrink. A holder's blocks behind a hole wait
// in stranded until the hole fills.
type space struct {
	d     *domain
	scope Scope
	root  prefixhash.Key
	index int

	heads    places // stems by their first keys
	marks    places // of the blocks at every markEvery blocks of a prompt
	held     int    // blocks in stems
	stranded atomic.Pointer[table]
	lower    [tiers]atomic.Pointer[table] // [TierCPU], [TierStorage]
	leases   [leaseKinds]atomic.Pointer[leases]
	dropped  bool // drained and discarded: make another

	hand uint32 // where the next eviction looks
}

func newDomain(x *Index, key domainKey) *domain {
	d := &domain{x: x, key: key, copies: map[copyKey]uint32{}}
	d.seating.init(&x.epochs)
	d.sets.init(&x.epochs)
	d.stems.init(&x.epochs)
	d.orphans.init()
	return d
}

// newSpace adds a scope. d.mu is held.
func newSpace(d *domain, s Scope) *space {
	index := slices.Index(d.spaces, nil)
	if index < 0 {
		index = len(d.spaces)
		d.spaces = append(d.spaces, nil)
	}
	sp := &space{
		d: d, scope: s, index: index,
		root: prefixhash.TokenRoot(s.Model, s.LoRA),
	}
	sp.heads.epochs, sp.heads.seed = &d.x.epochs, d.x.seed
	sp.marks.epochs, sp.marks.seed = &d.x.epochs, d.x.seed
	d.spaces[index] = sp
	return sp
}

// flat returns the table behind p, made when absent.
func (sp *space) flat(p *atomic.Pointer[table]) *table {
	if t := p.Load(); t != nil {
		return t
	}
	t := newTable(&sp.d.x.epochs, sp.d.x.seed)
	p.Store(t)
	return t
}

// seatFor returns the holder's live seat here. The caller holds h.mu and d.mu.
func (d *domain) seatFor(h *holder) (int, bool) {
	if seat, ok := d.seating.seatOf(h.id); ok {
		return seat, true
	}
	seat, ok := d.seating.take(h.id)
	if !ok {
		return 0, false
	}
	for len(d.info) <= seat {
		d.info = append(d.info, seatInfo{})
	}
	d.info[seat] = seatInfo{holder: h, lane: lane{pool: &d.x.epochs.pool}}
	d.partial.put(seat, false)
	h.domains = append(h.domains, d)
	d.judge(h, seat)
	return seat, true
}

// judge applies the verdict about a holder's cache groups to its seat.
func (d *domain) judge(h *holder, seat int) {
	hybrid, hidden := h.verdict(d.key)
	d.hybrid.put(seat, hybrid)
	d.hidden.put(seat, hidden)
}

// flipSlot adds or takes a seat in one slot, without the shortcut of a flipper.
func (d *domain) flipSlot(t *table, s *slot, seat int) bool {
	cur := setID(s.val & valSet)
	to, ok := d.sets.flip(cur, seat)
	if !ok {
		return false
	}
	t.set(s, to)
	d.sets.drop(cur, 1)
	return true
}

func (d *domain) slotHas(s *slot, seat int) bool {
	return s != nil && d.sets.has(setID(s.val&valSet), seat)
}

// inTable says whether a possibly absent table has the key for the seat.
func (d *domain) inTable(p *atomic.Pointer[table], key uint64, seat int) bool {
	t := p.Load()
	return t != nil && d.slotHas(t.find(key), seat)
}

// blocks is how many keys the space keeps. The caller holds d.mu.
func (sp *space) blocks() int {
	n := sp.held
	if t := sp.stranded.Load(); t != nil {
		n += t.count()
	}
	for i := range sp.lower {
		if t := sp.lower[i].Load(); t != nil {
			n += t.count()
		}
	}
	return n
}

func (d *domain) blocks() (n int) {
	for _, sp := range d.spaces {
		if sp != nil {
			n += sp.blocks()
		}
	}
	return n
}

// settleEvery is how many blocks are stored between looks at the running
// lookups: a look costs about as much as storing two.
const settleEvery = 256

// settle lets the tables reuse what no running lookup can see.
func (d *domain) settle(stored int) {
	if d.unsettled += stored; d.unsettled < settleEvery {
		return
	}
	d.unsettled = 0
	oldest := d.x.epochs.oldest()
	for _, sp := range d.spaces {
		if sp == nil {
			continue
		}
		for _, t := range sp.flats() {
			t.settle(oldest)
		}
	}
}
