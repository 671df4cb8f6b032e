package index

import (
	"slices"
	"sync"
	"sync/atomic"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
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

	slots   holderset.Slots
	hybrid  holderset.Mask // slots whose full-attention group is not known
	hidden  holderset.Mask // slots that must not match here: hybrid, or another group is the full one
	partial holderset.Mask // slots whose blocks were evicted from the index

	mu      sync.Mutex
	sets    holderset.Sets
	stems   stems
	spaces  []*space
	info    []slotInfo // by slot
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

// slotInfo is what the writer knows of a holder's blocks.
type slotInfo struct {
	holder *holder
	blocks [tiers]int // held

	lane     hashtable.Index        // where the blocks are that it has with all before them, by its names for them
	odd      hashtable.Map          // of them, those whose names are not their stems'
	kids     hashtable.Map          // by pos: stems behind that block of which it has the first block
	lower    map[int]*hashtable.Map // keys of what it has below the GPU, by its names, by space
	stranded map[uint64]strandedBlock
	behind   map[spaceKey][]uint64 // names of stranded blocks by their parents
}

// init makes the names of a holder's blocks empty.
func (i *slotInfo) init(h *holder, d *domain) {
	*i = slotInfo{holder: h}
	i.lane.Init(&d.x.pool)
	i.odd.Init(&d.x.pool)
	i.kids.Init(&d.x.pool)
}

// find is where a block is that the holder has with all before it, by its name;
// 0 when there is none.
func (i *slotInfo) find(s *stems, name uint64) pos {
	if _, p := i.own(s, name); p != 0 || i.odd.Len() == 0 {
		return p
	}
	return pos(i.odd.Get(name))
}

// own is where a block is that its stem has by the same name.
func (i *slotInfo) own(s *stems, name uint64) (hashtable.Position, pos) {
	at, p := i.lane.Next(name, hashtable.Position{})
	for p != 0 && s.at(pos(p).stem()).name(pos(p).off()) != name {
		at, p = i.lane.Next(name, at)
	}
	return at, pos(p)
}

// put gives a name that its stem has there a place, and returns the place of a
// known one, else 0. There is room. The stem's need not be written yet.
func (i *slotInfo) put(s *stems, name uint64, p pos) (was pos) {
	if !i.lane.Lacks(name) {
		if _, was := i.own(s, name); was != 0 {
			return was
		}
	}
	i.lane.Put(name, uint64(p))
	return 0
}

// take forgets a name, and says where its block is.
func (i *slotInfo) take(s *stems, name uint64) pos {
	at, p := i.own(s, name)
	if p != 0 {
		i.lane.Delete(name, at)
		return p
	}
	return pos(i.odd.Delete(name))
}

// eachName calls f for every such block.
func (i *slotInfo) eachName(s *stems, f func(name uint64, p pos)) {
	i.lane.Each(func(at uint64) {
		p := pos(at)
		f(s.at(p.stem()).name(p.off()), p)
	})
	i.odd.Each(func(name, p uint64) bool {
		f(name, pos(p))
		return true
	})
}

// maxSpaces is how many scopes a stem can tell apart.
const maxSpaces = 1 << 16

// copyKey names a block a holder has more than once; the value counts the
// copies beyond the first.
type copyKey struct {
	space, slot int32
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

	heads    hashtable.SharedIndex // stems by their first keys
	marks    hashtable.SharedIndex // of the blocks at every markEvery blocks of a prompt
	held     int                   // blocks in stems
	stranded atomic.Pointer[hashtable.Table]
	lower    [tiers]atomic.Pointer[hashtable.Table] // [TierCPU], [TierStorage]
	leases   [leaseKinds]atomic.Pointer[leases]
	dropped  bool // drained and discarded: make another

	hand uint32 // where the next eviction looks
}

func newDomain(x *Index, key domainKey) *domain {
	d := &domain{x: x, key: key, copies: map[copyKey]uint32{}}
	d.slots.Init(&x.clock)
	d.sets.Init(&x.clock)
	d.stems.init(x)
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
	sp.heads.Init(&d.x.pool, d.x.seed)
	sp.marks.Init(&d.x.pool, d.x.seed)
	d.spaces[index] = sp
	return sp
}

// flat returns the table behind p, made when absent.
func (sp *space) flat(p *atomic.Pointer[hashtable.Table]) *hashtable.Table {
	if t := p.Load(); t != nil {
		return t
	}
	t := hashtable.NewTable(&sp.d.x.clock, &sp.d.x.pool, sp.d.x.seed)
	p.Store(t)
	return t
}

// slotFor returns the holder's live slot here. The caller holds h.mu and d.mu.
func (d *domain) slotFor(h *holder) (int, bool) {
	if slot, ok := d.slots.Of(int32(h.id)); ok {
		return slot, true
	}
	slot, ok := d.slots.Take(int32(h.id))
	if !ok {
		return 0, false
	}
	for len(d.info) <= slot {
		d.info = append(d.info, slotInfo{})
	}
	d.info[slot].init(h, d)
	d.partial.Put(slot, false)
	h.domains = append(h.domains, d)
	d.judge(h, slot)
	return slot, true
}

// judge applies the verdict about a holder's cache groups to its slot.
func (d *domain) judge(h *holder, slot int) {
	hybrid, hidden := h.verdict(d.key)
	d.hybrid.Put(slot, hybrid)
	d.hidden.Put(slot, hidden)
}

// toggleIn adds or takes a slot in one slot, without the shortcut of a flipper.
func (d *domain) toggleIn(t *hashtable.Table, s *hashtable.Row, slot int) bool {
	cur := s.Value().Set()
	to, ok := d.sets.Toggle(cur, slot)
	if !ok {
		return false
	}
	t.Set(s, to)
	d.sets.Release(cur, 1)
	return true
}

func (d *domain) rowHas(s *hashtable.Row, slot int) bool {
	return s != nil && d.sets.Has(holderset.ID(s.Value().Set()), slot)
}

// inTable says whether a possibly absent table has the key for the slot.
func (d *domain) inTable(p *atomic.Pointer[hashtable.Table], key uint64, slot int) bool {
	t := p.Load()
	return t != nil && d.rowHas(t.Find(key), slot)
}

// blocks is how many keys the space keeps. The caller holds d.mu.
func (sp *space) blocks() int {
	n := sp.held
	if t := sp.stranded.Load(); t != nil {
		n += t.Len()
	}
	for i := range sp.lower {
		if t := sp.lower[i].Load(); t != nil {
			n += t.Len()
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
	oldest := d.x.clock.Oldest()
	for _, sp := range d.spaces {
		if sp == nil {
			continue
		}
		for _, t := range sp.flats() {
			t.Settle(oldest)
		}
	}
}
