package hybrid

import (
	"cmp"
	"slices"
	"sync/atomic"

	"warmroute/index/internal/holderset"
	"warmroute/index/internal/radix"
	"warmroute/index/internal/spans"
)

// Shard follows members along the nodes of one group of the index: it has the blocks of their
// other groups there, and the plans by which a lookup finds their hits. The shard's writer calls
// its methods; lookups call Narrow. Holders are slots. Init comes first.
type Shard struct {
	sets   *holderset.Sets
	others atomic.Pointer[[]*spans.Table] // the blocks of each spec behind full attention
	plans  atomic.Pointer[[]planSlots]    // of the slots of members
	slots  []followed
	none   followed // of slots that have never followed a member

	news []placed // scratch
}

// followed is the member in a slot; its plan is nil if there is none.
type followed struct {
	member *Member
	plan   *Plan
}

// planSlots are the slots, as bits, that follow one plan. It is immutable.
type planSlots struct {
	plan  *Plan
	slots []uint64
}

// placed is a block in the nodes, and the specs, as bits, that hold it behind full attention.
type placed struct {
	at    radix.Place
	specs uint32
}

// Init makes the shard empty.
func (s *Shard) Init(sets *holderset.Sets) {
	s.sets = sets
	s.others.Store(&[]*spans.Table{})
	s.plans.Store(&[]planSlots{})
}

// Others returns the blocks of the groups besides full attention along the nodes.
func (s *Shard) Others() []*spans.Table { return *s.others.Load() }

// at returns the member that a slot follows, if any.
func (s *Shard) at(slot int) *followed {
	if slot < len(s.slots) {
		return &s.slots[slot]
	}
	return &s.none
}

// Follows reports whether a slot follows a member by its current plan; with nil, whether it
// follows none.
func (s *Shard) Follows(slot int, m *Member) bool {
	f := s.at(slot)
	return f.member == m && (m == nil || f.plan == m.joined.Load())
}

// HasOthers reports whether the slot follows a member with groups besides full attention.
func (s *Shard) HasOthers(slot int) bool { return s.at(slot).hasOthers() }

func (f *followed) hasOthers() bool { return f.plan != nil && f.plan.hasOthers() }

// Follow makes the groups of a member decide a slot's hits; with nil, no groups do. blocks
// are the slot's in the nodes.
func (s *Shard) Follow(slot int, m *Member, blocks *radix.Holding) {
	s.slots = append(s.slots, make([]followed, max(0, slot+1-len(s.slots)))...)
	f := &s.slots[slot]
	if f.hasOthers() { // it hits nothing until the end
		*f = followed{}
		s.read(slot, blocks)
	}
	*f = followed{member: m}
	if m != nil {
		f.plan = m.joined.Load()
	}
	if f.hasOthers() {
		s.grow(len(f.plan.layout.Specs) - 1) // before lookups read them
	}
	s.setPlan(slot, f.plan)
	if f.hasOthers() {
		s.read(slot, blocks)
	}
}

// grow makes at least so many tables.
func (s *Shard) grow(n int) {
	tables := slices.Clone(s.Others())
	for len(tables) < n {
		t := new(spans.Table)
		t.Init(s.sets)
		tables = append(tables, t)
	}
	s.others.Store(&tables)
}

// End records that the holder in a slot has ended. Sweep follows.
func (s *Shard) End(slot int) { *s.at(slot) = followed{} }

// Sweep removes ended holders, by their slots, from the nodes from … to - 1; to may
// be 0 behind the last node.
func (s *Shard) Sweep(ended *holderset.Mask, from, to uint32) {
	for _, t := range s.Others() {
		t.Sweep(ended, from, to)
	}
}

// read reads which groups hold the blocks that a slot has in the nodes.
func (s *Shard) read(slot int, blocks *radix.Holding) {
	blocks.Each(func(hash uint64, p radix.Place) { s.note(slot, hash, p) })
	s.write(slot)
}

// Stored reads which groups hold the blocks that the nodes now have at p.
func (s *Shard) Stored(slot int, p radix.Place, hashes []uint64) {
	if !s.HasOthers(slot) {
		return
	}
	for k, hash := range hashes {
		s.note(slot, hash, p+radix.Place(k))
	}
	s.write(slot)
}

// Settle reads again which groups hold the hashes' blocks that the slot has in the nodes.
func (s *Shard) Settle(slot int, blocks *radix.Holding, hashes []uint64) {
	if !s.HasOthers(slot) {
		return
	}
	for _, hash := range hashes {
		if p := blocks.Find(hash); p != 0 {
			s.note(slot, hash, p)
		}
	}
	s.write(slot)
}

// note remembers for write which specs of a slot's plan hold a block.
func (s *Shard) note(slot int, hash uint64, p radix.Place) {
	one := placed{at: p}
	if f := s.at(slot); f.plan != nil {
		one.specs = f.plan.othersOf(f.member.held.groups[hash])
	}
	s.news = append(s.news, one)
}

// write puts the noted blocks into the tables, as few spans.
func (s *Shard) write(slot int) {
	slices.SortFunc(s.news, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	for rest := s.news; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n] == (placed{rest[0].at + radix.Place(n), rest[0].specs}) {
			n++
		}
		first := rest[0]
		for i, t := range s.Others() {
			t.Put(first.at.Node(), first.at.Offset(), first.at.Offset()+n, slot, first.specs>>i&1 != 0)
		}
		rest = rest[n:]
	}
	s.news = s.news[:0]
}

// Cut drops a node's blocks from an offset on: the nodes are about to lose them.
func (s *Shard) Cut(slot int, node uint32, from int) {
	for _, t := range s.Others() {
		t.Put(node, from, radix.MaxNode, slot, false)
	}
}

// setPlan sets how a slot's hits are found; nil: the shard does not find them.
func (s *Shard) setPlan(slot int, p *Plan) {
	var next []planSlots
	for _, o := range *s.plans.Load() {
		if slot>>6 < len(o.slots) && o.slots[slot>>6]>>(slot&63)&1 != 0 {
			o.slots = slices.Clone(o.slots)
			o.slots[slot>>6] &^= 1 << (slot & 63)
		}
		if o.plan == p || slices.ContainsFunc(o.slots, func(word uint64) bool { return word != 0 }) {
			next = append(next, o)
		}
	}
	if p != nil {
		i := slices.IndexFunc(next, func(o planSlots) bool { return o.plan == p })
		if i < 0 {
			i = len(next)
			next = append(next, planSlots{plan: p})
		}
		o := &next[i]
		o.slots = append(slices.Clone(o.slots), make([]uint64, max(0, slot>>6+1-len(o.slots)))...)
		o.slots[slot>>6] |= 1 << (slot & 63)
	}
	s.plans.Store(&next)
}
