package hybrid

import (
	"sync"
	"sync/atomic"

	"warmroute/prefixhash"
)

// Host is the index as one member sees it: the blocks of the member's holder in the
// index's nodes. The member's writer calls it, and holds no lock of this package
// meanwhile.
type Host interface {
	sync.Locker // of the member's writer; held when the member's methods that change it are called

	// Attach makes each shard with blocks of the member follow the member's plan.
	Attach()
	// Settle makes the shard that follows the member read again which groups hold these
	// blocks.
	Settle(hashes []uint64)
	// Leading returns how many of the hashes, from the first on, are of blocks in a
	// group's nodes.
	Leading(group int, hashes []uint64) int
	// Remove takes a copy of a block out of the nodes of a group, as an event would.
	Remove(group int, hash uint64)
	// Find calls f for each hash of a block that a group has: with its index, the block's
	// key, and how many blocks there are up to it.
	Find(group int, hashes []uint64, f func(i int, key uint64, depth int))
}

// Member is one holder's cache of one model. One writer at a time changes it; lookups
// read only its published part.
type Member struct {
	ID    int32 // the holder's number
	model *Model
	host  Host

	settings *Settings // configured; nil: nothing is
	observed observed
	plain    bool // the layout is one group of full attention, so held stays empty
	held     held
	reports  reports
	tier     *tier // nil: no event of CPU memory has come

	untracked bool // see UntrackedBelow

	published

	scratch
}

// scratch is memory that calls use again.
type scratch struct {
	keys  []prefixhash.Key
	ends  []uint64
	found []located
}

// published is the part of a member that lookups read.
type published struct {
	seat   atomic.Int32         // + 1; 0: lookups do not find the member
	joined atomic.Pointer[Plan] // how they find its hit; nil: it hits all blocks of its full attention, or none if it is Unknown
	plan   atomic.Pointer[Plan] // the same, set also if lookups need not find the member
	trust  atomic.Pointer[Trust]
	keyed  atomic.Bool // some event was not Keyless
	tiered atomic.Pointer[tierFacts]
	sight  atomic.Uint32 // the Sight of the settings, + 1 if lookups are SGLang's
	loads  atomic.Int32  // LoadLeast + 1 if the settings have Loads
}

// NewMember returns the cache of a holder. settings may be nil.
func (g *Model) NewMember(id int32, host Host, settings *Settings) *Member {
	m := &Member{ID: id, model: g, host: host, plain: true}
	m.set(settings)
	return m
}

// Seat returns the member's number in its model, or -1 if lookups do not find it.
func (m *Member) Seat() int { return int(m.seat.Load()) - 1 }

// Configure replaces the settings.
func (m *Member) Configure(s *Settings) {
	m.set(s)
	m.Reshape()
}

// Observe records the facts that an event shows of its group, and reports whether any is
// new. It comes before the events of the same batch are applied: all groups of one step
// of the engine are in one batch, and full attention is often the last of them.
func (m *Member) Observe(e *Event) (news bool) {
	if !e.valid() {
		news = e.Group >= MaxGroups && !m.observed.beyond
		m.observed.beyond = m.observed.beyond || news
		return news
	}
	if !e.Keyless {
		m.keyed.Store(true)
	}
	if e.Ahead > 0 && m.observed.ahead != e.Ahead {
		m.observed.ahead, news = e.Ahead, true
	}
	m.observed.kinds = m.observed.kinds || e.Spec != ""
	return m.observed.note(e) || news
}

// ObserveKeying records how vLLM's hashes are computed, and reports whether that is new.
func (m *Member) ObserveKeying(c Keying) (news bool) {
	news = m.observed.keying != c
	m.observed.keying = c
	return news
}

// Doubt makes the member's answers upper bounds, for a reason in one sentence.
func (m *Member) Doubt(why string) {
	m.observed.doubt = why
	m.updateTrust()
}

// Reshape derives the layout from settings and events, and makes lookups find
// the member by it.
func (m *Member) Reshape() {
	told := m.told()
	if told.Reports {
		m.reports.seen, m.reports.told = true, true
	}
	layout := m.layout(&told)
	if layout == nil {
		return
	}
	was := m.plain
	m.plain = layout.Plain()
	if was && !m.plain {
		m.empty()
	}
	m.join(layout)
}

// join plans how lookups find the member, and makes them find it so.
func (m *Member) join(l *Layout) {
	told := m.told()
	p := m.model.share(newPlan(l, told.assumed(), m.observed.keying, m.observed.ahead))
	m.plan.Store(p)
	m.updateTrust()
	was := m.joined.Load()
	switch {
	case !l.Known, m.plain && m.tier == nil && p.assumed.None() && p.home.Group == 0 && p.home.Ahead == 0:
		m.leave()
		m.joined.Store(nil)
	case was != nil && m.Seat() >= 0 && was.sameBlocks(p): // other settings
		m.joined.Store(p)
		if p.along {
			m.host.Attach() // before lookups leave the member to the shards
		}
		m.model.mu.Lock()
		m.model.list(m.model.roster.Load().members)
		m.model.mu.Unlock()
	default:
		m.leave()
		if was != nil && !was.sameBlocks(p) {
			m.rekeyBelow(p)
		}
		m.enter(p)
	}
	m.host.Attach()
}

// Clear applies an AllBlocksCleared of the GPU: it drops the blocks there and the prompts in
// flight, and keeps the learned facts. Which of these prompts the holder had computed before it
// cleared its cache is not known. With alone, the tier is known to be left.
func (m *Member) Clear(alone bool) {
	if !alone {
		m.changeTier(func(*tier) { m.doubt(false) })
	}
	m.reports.forget()
	if !m.plain {
		p, keys := m.joined.Load(), m.held.keys
		m.leave()
		m.empty()
		if m.tier != nil {
			m.held.keys = keys // the tier may still announce these blocks
		}
		m.enter(p)
	}
	m.updateTrust()
}

// End takes the member out of lookups for good: its holder ends or begins anew.
func (m *Member) End() {
	m.leave()
	m.empty()
	if m.tier != nil {
		m.model.budget.give(len(m.tier.held))
		m.tier = nil
	}
}

// empty drops the blocks of a member that no lookup finds.
func (m *Member) empty() {
	m.model.budget.give(len(m.held.groups))
	m.held = held{groups: map[uint64]uint32{}, copies: map[groupHash]uint32{}, keys: map[uint64]uint64{}}
}

// Stored applies an event that Repeats does not leave out.
func (m *Member) Stored(e *Event) {
	m.again(e)
	p := m.joined.Load()
	if m.plain || p == nil {
		m.describeBelow(e)
		return
	}
	m.model.mu.Lock()
	if p.keying.Hash == nil && e.Contents != nil && e.Block == p.keying.Unit {
		m.link(e)
	}
	for _, hash := range e.Hashes {
		b := groupHash{e.Group, hash}
		if e.Keys { // the reporter counts copies
			m.setKey(hash, hash)
			if m.held.has(b) {
				continue
			}
		}
		m.add(b)
	}
	m.model.mu.Unlock()
	m.settle()
	m.describeBelow(e)
}

// Partial reports whether groups of the member keep only a part of a prompt's past.
func (m *Member) Partial() bool {
	p := m.joined.Load()
	return p != nil && p.layout.full < len(p.layout.Specs)
}

// InNodes reports whether the index's nodes take the blocks of an event.
func (m *Member) InNodes(e *Event) bool {
	p := m.joined.Load()
	return m.plain || p == nil || e.Block >= m.observed.groups[e.Group].block && p.takes(e.Group)
}

// Removed applies a Removed event of a group.
func (m *Member) Removed(group int, hashes []uint64) {
	if m.plain {
		return
	}
	m.model.mu.Lock()
	for _, hash := range hashes {
		m.drop(groupHash{group, hash})
	}
	m.model.mu.Unlock()
	m.settle()
}

// settle makes the index's shard read the blocks whose groups have changed.
func (m *Member) settle() {
	if len(m.held.moved) > 0 {
		m.host.Settle(m.held.moved)
		m.held.moved = m.held.moved[:0]
	}
}

// link records the own keys of an event's blocks, of which the event leaves none out.
func (m *Member) link(e *Event) {
	key, known := uint64(prefixhash.TokenRoot(m.model.name, e.LoRA)), true
	if e.HasParent {
		key, known = m.held.keys[e.Parent]
	}
	if !known {
		return
	}
	m.keys = prefixhash.AppendLinks(m.keys[:0], prefixhash.Key(key), e.Contents)
	for i, k := range m.keys {
		m.setKey(e.Hashes[i], uint64(k))
	}
}

// Attached reports whether the shard of a group follows the member, because its hits follow from what
// lies along that group's nodes.
func (m *Member) Attached(group int) bool {
	p := m.joined.Load()
	return p != nil && p.along && p.home.Group == group
}

// HasOthers reports whether groups besides full attention decide the member's hits along a home.
func (m *Member) HasOthers(home Home) bool {
	p := m.joined.Load()
	return p != nil && p.hasOthers() && p.home == home
}

// Hit returns how many blocks of a prompt the member hits if it holds the first ones in a
// home. It returns false unless the member has no other groups and drops blocks.
func (m *Member) Hit(home Home, held int32, tokens int) (hit int32, ok bool) {
	p := m.joined.Load()
	if p == nil || !p.along || p.hasOthers() || p.home != home {
		return 0, false
	}
	return int32(p.hit(tokens, depthProber(held)) / home.Block), true
}

// Unknown reports whether it is not known which groups prove a cached prefix.
func (m *Member) Unknown() bool {
	p := m.plan.Load()
	return p != nil && (!p.layout.Known || p.layout.full == 0 && !p.layout.one())
}

// Hides reports whether the blocks of a group alone prove no cached prefix, because others count
// or it is not known which do.
func (m *Member) Hides(group int) bool {
	p := m.plan.Load()
	return m.Unknown() || p != nil && p.layout.full > 0 && p.layout.Specs[0].Index != group
}

// Grouped reports whether hits do not follow from the blocks of full attention alone.
func (m *Member) Grouped() bool {
	p := m.plan.Load()
	return p != nil && (!p.layout.Plain() || !p.assumed.None())
}
