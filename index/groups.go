package index

import (
	"slices"
	"sync"
	"sync/atomic"

	"warmroute/index/internal/cachegroups"
	"warmroute/index/internal/ends"
	"warmroute/prefixhash"
)

// GroupSettings is what is known of a replica's cache groups from elsewhere than its
// events: configuration, labels, the model's files.
type GroupSettings = cachegroups.Settings

// CacheGroup is one KV cache group, as settings describe it.
type CacheGroup = cachegroups.Group

// MaxGroups is how many cache groups a replica may have.
const MaxGroups = cachegroups.MaxGroups

// GroupRule is a generation of vLLM's lookup.
type GroupRule = cachegroups.Rule

// The generations of vLLM's lookup, for GroupSettings. Releases 0.27 to 0.31 share
// one; 0.33 has 0.32's.
const (
	GroupRuleUnknown = cachegroups.RuleUnknown

	GroupRule021 = cachegroups.Rule021
	GroupRule027 = cachegroups.Rule027
	GroupRule032 = cachegroups.Rule032
)

// GroupRuleOf is the lookup of a vLLM release whose code was read or run, else
// unknown: then the events' form decides.
func GroupRuleOf(r prefixhash.Release) GroupRule {
	switch {
	case r.Between(21, 21):
		return GroupRule021
	case r.Between(27, 31):
		return GroupRule027
	case r.Between(32, 33):
		return GroupRule032
	}
	return GroupRuleUnknown
}

// RetainAll is the retention of caches that keep all that windows need, for GroupSettings.
const RetainAll = cachegroups.Dense

// GroupSpec names a group's kind from vLLM's name of it, for CacheGroup.
func GroupSpec(index int, spec string, window, chunk int) CacheGroup {
	return CacheGroup{Index: index, Spec: spec, Kind: cachegroups.KindOf(spec), Window: window, Chunk: chunk}
}

// Chain is how the boundaries of a prompt's blocks are named: with vLLM's own
// hashes, or, when Hash is nil, with this project's token chain.
type Chain struct {
	Hash *prefixhash.VLLM
	Unit int // tokens
	// Ahead is how many tokens behind each unit its key covers too; only those are
	// named that have so many behind them.
	Ahead int
}

// Prompt is a prompt that FindPrompt looks up.
type Prompt interface {
	// Tokens is its length.
	Tokens() int
	// AppendChain appends the keys after each full unit of the prompt, the last
	// token included; nothing when that chain cannot be computed.
	AppendChain(dst []prefixhash.Key, c Chain) []prefixhash.Key
}

// groupModel is the caches of one model whose hits do not follow from the blocks of
// full attention alone.
type groupModel struct {
	mu       sync.Mutex // of writers; taken after holder.mu
	table    groupTable
	members  atomic.Pointer[groupMembers] // replaced as a whole
	free     []int                        // slots, the one free for longest first
	classes  []*groupClass
	arrivals arrivals
}

// groupMembers are a model's members.
type groupMembers struct {
	all    []*groupMember // by slot, nil where free
	ruled  []uint64       // slots for which a lookup runs the rule, as bits
	scopes []groupScope   // where the others' hits are
	whole  bool           // of some of them a prompt's last token counts
	bounds []*groupClass  // those of which a bound is known
	firsts []*groupClass  // those of the members for which the rule runs if they hold a prompt's first block
}

// groupClass is what members have in common that are looked up alike.
type groupClass struct {
	geometry  *cachegroups.Geometry
	assumed   cachegroups.Assumed
	chain     Chain
	retention int      // of what windows need, as cachegroups.Coming has it
	run       bool     // the blocks of its full attention are in the index's nodes
	specs     []uint64 // by spec, what its blocks' keys are mixed with
	scope     groupScope
	method    method      // how what full attention holds becomes what its members hit
	shape     *ends.Shape // where the other groups let hits end, of byEnds
}

// groupScope is where the nodes of a full-attention group are.
type groupScope struct{ group, block, ahead int }

// groupMember is one holder's groups of one model. What is not atomic belongs to
// the writer, under holder.mu.
type groupMember struct {
	holder *holder
	model  *groupModel
	key    modelKey
	slot   int          // -1: not looked up
	slots  atomic.Int32 // slot + 1, for readers

	groups   [cachegroups.MaxGroups]groupSeen
	settings *GroupSettings
	held     map[uint64]uint32 // by the engine's hash: the groups that hold it
	extra    map[groupCopy]uint32
	names    map[uint64]uint64 // the engine's hash → own key at the chain's unit
	chain    Chain             // vLLM's own, when it is known
	root     map[prefixhash.LoRA]uint64
	guesses  *cachegroups.Guesses
	class    atomic.Pointer[groupClass] // nil: what full attention holds is what it hits
	alone    atomic.Pointer[groupClass] // the same, of a plain one too
	guessed  atomic.Pointer[guessList]
	trust    atomic.Pointer[GroupTrust]
	settled  atomic.Bool // there is nothing to learn, or it has been learned
	tally    groupTally

	kinds bool   // the events name kinds
	ahead int    // tokens behind their block that hashes cover
	plain bool   // one group of full attention: nothing is kept here
	lost  bool   // more was stored than is kept
	unfit string // why the groups of the model's files are not taken

	reports reports
	keys    []uint64
	ends    []uint64
	moved   []uint64 // blocks whose groups have changed, for the shard's ends
}

// groupSeen is what events said of one group.
type groupSeen struct {
	seen   bool
	masked bool // blocks were left out
	spec   string
	window int
	block  int // the largest: what is smaller are the ends of prompts
	least  int
}

type groupCopy struct {
	group int
	hash  uint64
}

// GroupTrust is how reliable the predictions for a cache are.
type GroupTrust struct {
	Exact       bool   `json:"exact"`
	Unconfirmed bool   `json:"unconfirmed"` // it may be exact, but nothing the replica reported has shown it yet
	Why         string `json:"why"`         // one sentence, when not exact

	repeats bool // the reason is blocks that were announced again: other prompts are exact
}

// String is the verdict in one word.
func (t GroupTrust) String() string {
	switch {
	case t.Exact:
		return "exact"
	case t.Unconfirmed:
		return "unconfirmed"
	}
	return "inexact"
}

// SetGroups sets what is known of a replica's cache groups. It outlives
// incarnations. nil takes it back.
func (x *Index) SetGroups(replica string, t *GroupSettings) {
	x.mu.Lock()
	if t == nil {
		delete(x.groupConfig, replica)
	} else {
		if x.groupConfig == nil {
			x.groupConfig = map[string]*GroupSettings{}
		}
		x.groupConfig[replica] = t
	}
	x.mu.Unlock()
	x.holders.Range(func(_, v any) bool {
		if h := v.(*holder); h.self.Replica == replica {
			h.mu.Lock()
			for _, m := range h.members {
				m.settings = t
				m.guesses = nil
				m.shape()
			}
			h.mu.Unlock()
		}
		return true
	})
}

func (x *Index) groupSettings(replica string) *GroupSettings {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.groupConfig[replica]
}

// groupModelOf returns a model's caches with groups, made when absent.
func (x *Index) groupModelOf(k modelKey) *groupModel {
	if m := x.groupModelAt(k); m != nil {
		return m
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.groupModels.Load()
	next := map[modelKey]*groupModel{}
	if old != nil {
		if m := (*old)[k]; m != nil {
			return m
		}
		for k, m := range *old {
			next[k] = m
		}
	}
	m := &groupModel{}
	m.members.Store(&groupMembers{})
	m.table.init()
	next[k] = m
	x.groupModels.Store(&next)
	return m
}

func (x *Index) groupModelAt(k modelKey) *groupModel {
	if all := x.groupModels.Load(); all != nil {
		return (*all)[k]
	}
	return nil
}

// member returns the holder's groups of a model, made when absent. h.mu is held.
func (h *holder) member(k modelKey) *groupMember {
	for _, m := range h.members {
		if m.key == k {
			return m
		}
	}
	m := &groupMember{holder: h, model: h.x.groupModelOf(k), key: k, slot: -1, plain: true, settings: h.x.groupSettings(h.self.Replica)}
	h.members = append(h.members, m)
	h.noteMembers()
	return m
}

// forgetGroups ends the holder's groups: a new life, or none. h.mu is held.
func (h *holder) forgetGroups() {
	for _, m := range h.members {
		m.leave()
		m.empty()
	}
	h.members = nil
	h.noteMembers()
}

// noteMembers lets readers see the holder's members.
func (h *holder) noteMembers() {
	all := slices.Clone(h.members)
	h.seenMembers.Store(&all)
}

// clearGroups drops the blocks, and keeps what was learned. h.mu is held.
func (h *holder) clearGroups() {
	for _, m := range h.members {
		m.reports.forget()
		if c := m.alone.Load(); c != nil {
			m.updateTrust(c)
		}
		if m.plain {
			continue
		}
		class := m.class.Load()
		m.leave()
		m.empty()
		m.enter(class)
	}
}

// empty drops the blocks. The member is in no lookup.
func (m *groupMember) empty() {
	m.holder.x.grouped.Add(-int64(len(m.held)))
	m.held, m.extra, m.names, m.lost = map[uint64]uint32{}, map[groupCopy]uint32{}, map[uint64]uint64{}, false
}

// bytes is about the memory of what the member holds: Go's maps keep seven of
// eight entries full at most, and half of that behind growth.
func (m *groupMember) bytes() int {
	return 20*len(m.held) + 24*len(m.names) + 28*len(m.extra)
}

// enter gives the member a slot, and publishes what it holds.
func (m *groupMember) enter(class *groupClass) {
	m.class.Store(class)
	if class == nil {
		return
	}
	if class.method.kind != byRule {
		m.attach() // before lookups leave it to the shard
	}
	g := m.model
	g.mu.Lock()
	defer g.mu.Unlock()
	all := slices.Clone(g.members.Load().all)
	if n := len(g.free); n > minFreeSlots {
		m.slot = g.free[0]
		g.free = g.free[1:]
	} else {
		m.slot = len(all)
		all = append(all, nil)
	}
	all[m.slot] = m
	for hash, mask := range m.held {
		m.publish(hash, 0, mask)
	}
	m.slots.Store(int32(m.slot) + 1)
	g.list(all)
}

// minFreeSlots must be free before one is used again, so that a lookup that runs
// meanwhile does not take one member's blocks for another's.
const minFreeSlots = 64

// leave takes the member out of all lookups.
func (m *groupMember) leave() {
	if m.slot < 0 {
		return
	}
	g := m.model
	g.mu.Lock()
	defer g.mu.Unlock()
	all := slices.Clone(g.members.Load().all)
	all[m.slot] = nil
	g.list(all)
	for hash, mask := range m.held {
		m.publish(hash, mask, 0)
	}
	g.free = append(g.free, m.slot)
	m.slot = -1
	m.slots.Store(0)
}

// list lets lookups know the members. model.mu is held.
func (g *groupModel) list(all []*groupMember) {
	next := &groupMembers{all: all}
	for slot, m := range all {
		if m == nil {
			continue
		}
		c := m.class.Load()
		switch {
		case c.method.kind == byRule:
			next.ruled = append(next.ruled, make([]uint64, max(0, slot>>6+1-len(next.ruled)))...)
			next.ruled[slot>>6] |= 1 << (slot & 63)
			continue
		case c.method.kind == byRuns:
			if !slices.Contains(next.bounds, c) {
				next.bounds = append(next.bounds, c)
			}
		case !slices.Contains(next.scopes, c.scope):
			next.scopes = append(next.scopes, c.scope)
		}
		if c.method.firstState && !slices.Contains(next.firsts, c) {
			next.firsts = append(next.firsts, c)
		}
		next.whole = next.whole || c.method.whole
	}
	g.members.Store(next)
}

// publish changes which specs hold a block, from one mask of groups to another.
// model.mu is held.
func (m *groupMember) publish(hash uint64, was, is uint32) {
	c := m.class.Load()
	if c == nil || m.slot < 0 || c.method.kind == byRuns {
		return
	}
	key := hash
	if c.chain.Hash == nil {
		var known bool
		if key, known = m.names[hash]; !known {
			return
		}
	}
	m.publishKey(c, key, was, is)
}

func (m *groupMember) publishKey(c *groupClass, key uint64, was, is uint32) {
	for i := range c.geometry.Specs {
		if i == 0 && c.run {
			continue
		}
		mask := c.geometry.Specs[i].Mask
		if had, has := was&mask == mask, is&mask == mask; had != has {
			m.model.table.flip(mix(key, c.specs[i]), m.slot, has)
		}
	}
}

// mix makes the table's key of a block's key and its spec's salt; it is never 0.
func mix(key, salt uint64) uint64 {
	h := (key ^ salt) * 0x9e3779b97f4a7c15 // 2^64 / golden ratio
	h ^= h >> 32
	return max(1, h)
}

// add counts a copy.
func (m *groupMember) add(group int, hash uint64) {
	bit := uint32(1) << group
	was, known := m.held[hash]
	if was&bit != 0 {
		m.extra[groupCopy{group, hash}]++
		return
	}
	if !known {
		if x := m.holder.x; x.grouped.Add(1) > int64(x.o.MaxBlocks) {
			x.grouped.Add(-1)
			m.lost = true
			return
		}
	}
	m.held[hash] = was | bit
	m.changed(group, hash, was, was|bit)
}

// drop takes a copy.
func (m *groupMember) drop(group int, hash uint64) {
	bit := uint32(1) << group
	was := m.held[hash]
	if was&bit == 0 {
		return
	}
	if c := (groupCopy{group, hash}); len(m.extra) > 0 {
		if n := m.extra[c]; n > 0 {
			if m.extra[c] = n - 1; n == 1 {
				delete(m.extra, c)
			}
			return
		}
	}
	m.changed(group, hash, was, was&^bit)
	if was &^= bit; was == 0 {
		delete(m.held, hash)
		m.holder.x.grouped.Add(-1)
	} else {
		m.held[hash] = was
	}
}

// changed publishes a block that a group has stored or removed.
func (m *groupMember) changed(group int, hash uint64, was, is uint32) {
	m.publish(hash, was, is)
	if c := m.class.Load(); c != nil && c.shape != nil && group != c.scope.group {
		m.moved = append(m.moved, hash)
	}
}

// name notes the own key of a block that the engine calls so.
func (m *groupMember) name(hash, key uint64) {
	if was, ok := m.names[hash]; ok && was == key {
		return
	}
	most := m.holder.x.o.MaxBlocks
	if len(m.names) >= most {
		for h := range m.names { // names of blocks that are not held go first
			if _, held := m.held[h]; !held {
				delete(m.names, h)
			}
		}
		if len(m.names) >= most {
			m.lost = true
			return
		}
	}
	if mask := m.held[hash]; mask != 0 {
		m.publish(hash, mask, 0)
		m.names[hash] = key
		m.publish(hash, 0, mask)
		return
	}
	m.names[hash] = key
}

func (m *groupMember) slotNow() int { return int(m.slots.Load()) - 1 }
