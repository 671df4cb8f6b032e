package reporter

import (
	"cmp"
	"slices"

	"warmroute/index"
	"warmroute/index/indexpb"
	"warmroute/prefixhash"
)

// mirror is a copy of one holder's blocks, to report them again to an index that has
// lost them. It turns vLLM's hashes into keys of the reported scheme. It is not safe for
// concurrent use.
type mirror struct {
	held   map[blockID]*block
	byHash map[hashID]*block // of any tier, to resolve parents
	added  uint64

	groups  []*cacheGroup       // that events named
	full    int                 // of full attention, -1 = none was named
	waiting map[uint64][]*block // loose blocks without a key, by hash

	reported map[blockID]int // how many held blocks have a key
	twins    bool            // several blocks had one key: the engine's hashes cover more than keys do
}

// cacheGroup is one cache group as events describe it.
type cacheGroup struct {
	scope  index.Scope
	spec   string
	window int
	ahead  int // tokens behind each block that its hash covers
}

type hashID struct {
	hash  uint64
	group int
}

type blockID struct {
	hashID
	tier index.Tier
}

type block struct {
	id     blockID
	scope  index.Scope
	key    uint64
	parent uint64 // key; 0 = first of a prompt
	depth  uint64 // blocks from the prompt's start, itself included; 0 = not known
	copies int
	order  uint64 // a rising number: parents are mostly before their children

	group *cacheGroup // nil = its events name no kind
	loose bool        // in no order: its key is the key of full attention's block with the same hash; 0 = no such block yet
}

func newMirror() *mirror {
	m := new(mirror)
	m.clear()
	return m
}

func (m *mirror) clear() {
	m.held, m.byHash = make(map[blockID]*block), make(map[hashID]*block)
	m.groups, m.full, m.waiting = nil, -1, make(map[uint64][]*block)
	m.reported, m.twins = make(map[blockID]int), false
}

// reported returns what a block is for the index: its key in the place of its hash.
func (b *block) reported() blockID { return blockID{hashID{b.key, b.id.group}, b.id.tier} }

// first counts a block that is new, and reports whether no other has its key.
func (m *mirror) first(b *block) bool {
	id := b.reported()
	m.reported[id]++
	m.twins = m.twins || m.reported[id] > 1
	return m.reported[id] == 1
}

// last is first of a block that is gone.
func (m *mirror) last(b *block) bool {
	id := b.reported()
	if m.reported[id]--; m.reported[id] > 0 {
		return false
	}
	delete(m.reported, id)
	return true
}

// noteGroup records the cache group of a Stored event, and calls add when it is new.
func (m *mirror) noteGroup(e index.Event, add func(*cacheGroup)) {
	if e.Spec == "" || m.groupOf(e) != nil {
		return
	}
	g := &cacheGroup{scope: e.Scope, spec: e.Spec, window: e.Window, ahead: e.Ahead}
	g.scope.LoRA = prefixhash.LoRA{}
	m.groups = append(m.groups, g)
	if e.FullAttention() {
		m.full = e.Scope.Group
	}
	add(g)
}

func (m *mirror) groupOf(e index.Event) *cacheGroup {
	for _, g := range m.groups {
		if g.scope.Group == e.Scope.Group && g.scope.BlockSize == e.Scope.BlockSize && g.spec == e.Spec && g.window == e.Window && g.ahead == e.Ahead {
			return g
		}
	}
	return nil
}

// store applies a Stored event and calls add for every new block with a key. It drops blocks
// whose parent is not held, as the index does.
func (m *mirror) store(e index.Event, full bool, add func(*block)) (dropped int) {
	if e.ByHash {
		return m.storeByHash(e, full, add)
	}
	group := m.groupOf(e)
	if e.OtherKind() && (m.full >= 0 || e.Content == nil) {
		m.storeLoose(e, group, full, add)
		return 0
	}
	parent := &block{}
	if e.HasParent {
		parent = m.byHash[hashID{e.Parent, e.Scope.Group}]
		if parent == nil && e.Content == nil {
			parent = &block{key: e.Parent} // the hash is the key, at any place in the chain
		}
		if parent == nil {
			return len(e.Hashes)
		}
	}
	for i, hash := range e.Hashes {
		key := hash
		if e.Content != nil {
			from := prefixhash.Key(parent.key)
			if parent.key == 0 {
				from = prefixhash.TokenRoot(e.Scope.Model, e.Scope.LoRA)
			}
			key = uint64(prefixhash.Link(from, e.Content[i]))
		}
		parent = m.add(block{id: blockID{hashID{hash, e.Scope.Group}, e.Tier}, scope: e.Scope, key: key, group: group}, parent, full, add)
	}
	return 0
}

// storeByHash applies a Stored event that does not describe its blocks: each is the block
// that another event has announced under its hash.
func (m *mirror) storeByHash(e index.Event, full bool, add func(*block)) (dropped int) {
	for _, hash := range e.Hashes {
		of := m.byHash[hashID{hash, e.Scope.Group}]
		if of == nil || of.key == 0 {
			dropped++
			continue
		}
		parent := &block{key: of.parent}
		if of.depth > 0 {
			parent.depth = of.depth - 1
		}
		m.add(block{id: blockID{of.id.hashID, e.Tier}, scope: of.scope, key: of.key, group: of.group}, parent, full, add)
	}
	return dropped
}

// add keeps a block behind its parent, or counts one more copy of it, and returns the
// kept one. It calls add for a new block and for the loose blocks that waited for it.
func (m *mirror) add(one block, parent *block, full bool, add func(*block)) *block {
	id := one.id
	if b := m.held[id]; b != nil {
		if !full {
			b.copies++
		}
		return b
	}
	m.added++
	b := &one
	b.parent, b.copies, b.order = parent.key, 1, m.added
	if parent.key == 0 || parent.depth > 0 {
		b.depth = parent.depth + 1
	}
	m.held[id], m.byHash[id.hashID] = b, b
	add(b)
	if id.group == m.full {
		for _, l := range m.waiting[id.hash] {
			l.key, l.scope.Scheme = b.key, b.scope.Scheme
			add(l)
		}
		delete(m.waiting, id.hash)
	}
	return b
}

// storeLoose applies a Stored event of a group other than full attention. Such an event
// may skip blocks, so only the hashes identify their places.
func (m *mirror) storeLoose(e index.Event, group *cacheGroup, full bool, add func(*block)) {
	for _, hash := range e.Hashes {
		id := blockID{hashID{hash, e.Scope.Group}, e.Tier}
		if b := m.held[id]; b != nil {
			if !full {
				b.copies++
			}
			continue
		}
		m.added++
		b := &block{id: id, scope: e.Scope, copies: 1, order: m.added, group: group, loose: true}
		m.held[id] = b
		if of := m.byHash[hashID{hash, m.full}]; of != nil {
			b.key, b.scope.Scheme = of.key, of.scope.Scheme
			add(b)
		} else {
			m.waiting[hash] = append(m.waiting[hash], b)
		}
	}
}

// remove applies a Removed event and calls gone for every block without a copy left.
func (m *mirror) remove(e index.Event, gone func(*block)) {
	for _, hash := range e.Hashes {
		id := blockID{hashID{hash, e.Scope.Group}, e.Tier}
		b := m.held[id]
		if b == nil {
			continue
		}
		if b.copies--; b.copies > 0 {
			continue
		}
		delete(m.held, id)
		if m.byHash[id.hashID] == b {
			delete(m.byHash, id.hashID)
			for tier := range index.TierStorage + 1 {
				if other := m.held[blockID{id.hashID, tier}]; other != nil {
					m.byHash[id.hashID] = other
				}
			}
		}
		if b.loose && b.key == 0 {
			m.unwait(b)
			continue
		}
		gone(b)
	}
}

// unwait drops a loose block that never had a key.
func (m *mirror) unwait(b *block) {
	hash := b.id.hash
	if m.waiting[hash] = slices.DeleteFunc(m.waiting[hash], func(o *block) bool { return o == b }); len(m.waiting[hash]) == 0 {
		delete(m.waiting, hash)
	}
}

// all returns the held blocks with keys, in the order in which they were stored.
func (m *mirror) all() []*block {
	out := make([]*block, 0, len(m.held))
	for _, b := range m.held {
		if b.key != 0 || !b.loose {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b *block) int { return cmp.Compare(a.order, b.order) })
	return out
}

// follows reports whether b continues the chain of a.
func (b *block) follows(a *block) bool {
	if b.scope != a.scope || b.id.tier != a.id.tier || b.group != a.group || b.loose != a.loose {
		return false
	}
	return b.loose || b.parent == a.key && b.parent != 0
}

// announcement returns the report of a group without blocks.
func (g *cacheGroup) announcement() *indexpb.Prefix {
	return &indexpb.Prefix{BlockSize: uint32(g.scope.BlockSize), Group: int32(g.scope.Group), SpecKind: g.spec, Window: uint32(g.window), Lookahead: uint32(g.ahead)}
}

// prefix returns the report of blocks of which each follows the one before.
func prefix(run []*block) *indexpb.Prefix {
	first := run[0]
	if first.loose {
		return looseBlocks(run)
	}
	p := &indexpb.Prefix{BlockSize: uint32(first.scope.BlockSize), Group: int32(first.scope.Group), Tier: indexpb.Tier(first.id.tier)}
	if first.group != nil {
		p.SpecKind, p.Window, p.Lookahead = first.group.spec, uint32(first.group.window), uint32(first.group.ahead)
	}
	if l := first.scope.LoRA; l.Set {
		p.Lora = &indexpb.Lora{Name: l.Name, Path: l.Path}
	}
	if first.parent != 0 {
		p.ParentHash = hashOf(first.parent)
	}
	for i, b := range run {
		depth := b.depth
		if depth == 0 {
			depth = uint64(i) + 1 // within this prefix: the place in the prompt is not known
		}
		p.BlockHashes = append(p.BlockHashes, hashOf(b.key))
		p.TokenCounts = append(p.TokenCounts, depth*uint64(b.scope.BlockSize))
	}
	return p
}

// looseBlocks returns the report of blocks without an order.
func looseBlocks(run []*block) *indexpb.Prefix {
	p := run[0].group.announcement()
	p.Tier = indexpb.Tier(run[0].id.tier)
	for _, b := range run {
		p.BlockHashes = append(p.BlockHashes, hashOf(b.key))
	}
	return p
}
