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
	engines *engineMap
	spaces  []*space
	info    []seatInfo // by seat
	copies  map[copyKey]uint32
	orphans orphans

	unsettled int // blocks stored since tables were settled
	evicted   int // blocks since engines were last compared with them

	keys   []uint64 // scratch of the writer
	joined []*parked
	stack  []uint64
	sink   uint64 // keeps touches from being optimised away
}

type seatInfo struct {
	holder   *holder
	blocks   [tiers]int // held
	stranded int        // of the GPU blocks, those behind a block the holder lacks
}

// copyKey names a block a holder has more than once; the value counts the
// copies beyond the first.
type copyKey struct {
	space, seat int32
	tier        Tier
	key         uint64
}

// space is one scope's tables.
//
// gpu holds, for each holder, only blocks whose predecessors it also holds, so
// that along a chain the sets only shrink and lookups may search instead of
// walk. A holder's blocks behind a hole wait in stranded until the hole fills.
type space struct {
	d     *domain
	scope Scope
	root  prefixhash.Key
	index int

	gpu      *table
	kids     map[uint64][]uint64 // children beyond the first, by parent
	stranded atomic.Pointer[table]
	lower    [tiers]atomic.Pointer[table] // [TierCPU], [TierStorage]
	leases   [leaseKinds]atomic.Pointer[leases]
	dropped  bool // drained and discarded: make another
	plain    bool // some entries were stored by key, without an engine map

	hand uint64 // where the next eviction looks
}

func newDomain(x *Index, key domainKey) *domain {
	d := &domain{x: x, key: key, copies: map[copyKey]uint32{}}
	d.seating.init(&x.epochs)
	d.sets.init(&x.epochs)
	d.engines = newEngineMap(&d.sets)
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
		d: d, scope: s, index: index, kids: map[uint64][]uint64{},
		root: prefixhash.TokenRoot(s.Model, s.LoRA),
		gpu:  newTable(&d.x.epochs, d.x.seed),
	}
	sp.gpu.keep = sp.needed
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
	d.info[seat] = seatInfo{holder: h}
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

// holds says whether the seat has the key in any tier.
func (d *domain) holds(sp *space, key uint64, seat int) bool {
	return d.slotHas(sp.gpu.find(key), seat) || d.inTable(&sp.stranded, key, seat) ||
		d.inTable(&sp.lower[TierCPU], key, seat) || d.inTable(&sp.lower[TierStorage], key, seat)
}

// adopt notes key as a child of the block in slot s. Links outlive the child;
// whoever follows one looks whether the child is there.
func (sp *space) adopt(s *slot, key uint64) {
	switch {
	case s.child == key:
	case s.child == 0 || s.val&valMulti == 0 && !sp.alive(s.child):
		s.child = key
	default:
		list := append(sp.kids[s.key], key)
		if len(list) >= 8 && len(list)&(len(list)-1) == 0 { // at each power of two: amortised one probe a link
			list = sp.pruned(list)
		}
		sp.kids[s.key] = list
		if s.val&valMulti == 0 {
			atomic.StoreUint64(&s.val, s.val|valMulti)
		}
	}
}

// pruned drops links to blocks that are gone, and repeated ones.
func (sp *space) pruned(list []uint64) []uint64 {
	seen := make(map[uint64]struct{}, len(list))
	kept := list[:0]
	for i, key := range list {
		if _, again := seen[key]; again || i < len(list)-1 && !sp.alive(key) {
			continue
		}
		seen[key] = struct{}{}
		kept = append(kept, key)
	}
	return kept
}

// alive says whether somebody holds the block on GPU, visibly or stranded.
func (sp *space) alive(key uint64) bool {
	if s := sp.gpu.find(key); s != nil && s.val&valSet != 0 {
		return true
	}
	if t := sp.stranded.Load(); t != nil {
		s := t.find(key)
		return s != nil && s.val&valSet != 0
	}
	return false
}

// children calls f for the known children of a block until f returns false.
func (sp *space) children(s *slot, f func(key uint64) bool) {
	if s.child == 0 || !f(s.child) || s.val&valMulti == 0 {
		return
	}
	for _, key := range sp.kids[s.key] {
		if !f(key) {
			return
		}
	}
}

func (sp *space) hasChild(s *slot) (found bool) {
	sp.children(s, func(key uint64) bool {
		found = sp.alive(key)
		return !found
	})
	return found
}

// needed says whether an empty slot carries links that are still of use: those
// of a hole, to the stranded blocks behind it.
func (sp *space) needed(s *slot) bool {
	t := sp.stranded.Load()
	if t != nil && t.count() > 0 && (sp.alive(s.key) || sp.hasChild(s)) {
		return true
	}
	if s.val&valMulti != 0 {
		delete(sp.kids, s.key)
	}
	return false
}

// strand moves the seat's blocks from key on out of the visible table: the
// block before it is gone.
func (d *domain) strand(sp *space, key uint64, seat int) {
	stack := append(d.stack[:0], key)
	for len(stack) > 0 {
		key = stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		s := sp.gpu.find(key)
		if !d.slotHas(s, seat) || !d.flipSlot(sp.gpu, s, seat) {
			continue
		}
		t := sp.flat(&sp.stranded)
		side, _ := t.insert(key)
		d.flipSlot(t, side, seat)
		d.info[seat].stranded++
		sp.children(s, func(child uint64) bool {
			stack = append(stack, child)
			return true
		})
	}
	d.stack = stack
}

// promote moves the seat's stranded blocks behind s, which has become visible,
// back.
func (d *domain) promote(sp *space, s *slot, seat int) {
	t := sp.stranded.Load()
	stack := d.stack[:0]
	push := func(child uint64) bool {
		stack = append(stack, child)
		return true
	}
	for sp.children(s, push); len(stack) > 0; {
		key := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		side := t.find(key)
		if !d.slotHas(side, seat) {
			continue
		}
		child := sp.gpu.find(key) // kept as long as the key is stranded
		if child == nil || !d.flipSlot(sp.gpu, child, seat) {
			continue
		}
		d.flipSlot(t, side, seat)
		d.info[seat].stranded--
		sp.children(child, push)
	}
	d.stack = stack
}

// blocks is how many keys the space keeps. The caller holds d.mu.
func (sp *space) blocks() int {
	n := sp.gpu.count()
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
		for _, t := range sp.tables() {
			t.settle(oldest)
		}
	}
}
