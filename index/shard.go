package index

import (
	"sync"
	"sync/atomic"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/index/internal/hybrid"
	"warmroute/index/internal/radix"
	"warmroute/prefixhash"
)

// shardKey names the shard that resolves vLLM's hashes: removals name the cache group, but no adapter and
// no block size.
type shardKey struct {
	tenant, model, scheme string
	group                 int
}

// shard has the keyspaces of one model's cache group and hash scheme. One lock serialises its writers;
// lookups never take it.
type shard struct {
	x   *Index
	key shardKey

	slots  holderset.Slots
	hidden holderset.Mask // slots that must not match here: see hybrid.Member.Hides

	hybrid hybrid.Shard // the members in the slots

	mu        sync.Mutex
	sets      holderset.Sets
	nodes     radix.Nodes
	keyspaces []*keyspace
	info      []slotInfo // by slot
	copies    map[copyKey]uint32

	evicted int // blocks below the GPU, since forgetEvicted compared hashes with them

	writing
}

// writing is the writer's memory.
type writing struct {
	event segment // that is stored
	keys  []uint64
}

// slotInfo is the writer's record of a holder's blocks.
type slotInfo struct {
	holder *holder
	blocks [layers]int // held

	gpu radix.Holding // its blocks on GPU with all blocks before them

	lower   map[int]*hashtable.Map // by keyspace: its blocks below the GPU, keys by hashes
	capped  bool                   // the index dropped blocks to stay within its bounds
	refused map[uint64]struct{}    // keys of blocks that it could not store for another reason, some of them
	twins   twins
	strays  strays
}

// copyKey is a block that a holder has more than once. The value is the number of copies
// beyond the first.
type copyKey struct {
	keyspace, slot int32
	tier           Tier
	key            uint64
}

// keyspace is the blocks of one scope.
type keyspace struct {
	sh    *shard
	scope Scope
	maker string // the replica in whose share of the scopes it counts
	root  prefixhash.Key
	index int // of the tree in the shard's nodes

	tree    radix.Tree                              // blocks on GPU, with all before them
	lower   [layers]atomic.Pointer[hashtable.Table] // [TierCPU], [TierStorage], [tierLeased]
	dropped bool                                    // drained and discarded: the scope needs another
}

func newShard(x *Index, key shardKey) *shard {
	sh := &shard{x: x, key: key, copies: map[copyKey]uint32{}}
	sh.slots.Init(&x.clock)
	sh.sets.Init(&x.clock)
	sh.hybrid.Init(&sh.sets)
	sh.nodes.Init(&x.clock, &x.pool, &sh.sets, x.o.checkpointEvery)
	return sh
}

// newKeyspace adds a scope. sh.mu is held.
func newKeyspace(sh *shard, s Scope) *keyspace {
	ks := &keyspace{sh: sh, scope: s, root: prefixhash.TokenRoot(s.Model, s.LoRA)}
	ks.index = sh.nodes.Add(&ks.tree, sh.x.seed)
	if ks.index == len(sh.keyspaces) {
		sh.keyspaces = append(sh.keyspaces, nil)
	}
	sh.keyspaces[ks.index] = ks
	return ks
}

// flat returns the table behind p. It makes an absent one.
func (ks *keyspace) flat(p *atomic.Pointer[hashtable.Table]) *hashtable.Table {
	if t := p.Load(); t != nil {
		return t
	}
	t := hashtable.NewTable(&ks.sh.x.pool, ks.sh.x.seed)
	p.Store(t)
	return t
}

// slotFor returns the holder's live slot here. The caller holds h.mu and sh.mu.
func (sh *shard) slotFor(h *holder) (int, bool) {
	if slot, ok := sh.slots.Of(int32(h.id)); ok {
		return slot, true
	}
	slot, ok := sh.slots.Take(int32(h.id))
	if !ok {
		return 0, false
	}
	for len(sh.info) <= slot {
		sh.info = append(sh.info, slotInfo{})
	}
	sh.info[slot] = slotInfo{holder: h}
	sh.info[slot].gpu.Init(&sh.nodes, slot)
	h.shards = append(h.shards, sh)
	sh.follow(h.memberOf(sh.key.modelKey()), slot, true)
	return slot, true
}

// follow makes a slot match as its holder's member of the model says, which is nil if there is none.
func (sh *shard) follow(m *hybrid.Member, slot int, anew bool) {
	attached := m
	if m != nil && !m.Attached(sh.key.group) {
		attached = nil
	}
	if anew || !sh.hybrid.Follows(slot, attached) {
		sh.hybrid.Follow(slot, attached, &sh.info[slot].gpu)
	}
	sh.hidden.Put(slot, m != nil && m.Hides(sh.key.group))
}

// toggleIn adds or takes a slot in one row.
func (sh *shard) toggleIn(t *hashtable.Table, s *hashtable.Row, slot int) bool {
	cur := s.Set()
	to, ok := sh.sets.Toggle(cur, slot)
	if !ok {
		return false
	}
	t.Set(s, to)
	sh.sets.Release(cur)
	return true
}

func (sh *shard) rowHas(s *hashtable.Row, slot int) bool {
	return s != nil && sh.sets.Has(holderset.ID(s.Set()), slot)
}

// inTable reports whether a possibly absent table has the key for the slot.
func (sh *shard) inTable(p *atomic.Pointer[hashtable.Table], key uint64, slot int) bool {
	t := p.Load()
	return t != nil && sh.rowHas(t.Find(key), slot)
}

// slotOf returns the slot of a holder, if the keyspace is still in use. sh.mu is held.
func (ks *keyspace) slotOf(h *holder) (slot int, ok bool) {
	slot, ok = ks.sh.slots.Of(int32(h.id))
	return slot, ok && !ks.dropped && !ks.sh.x.closed.Load()
}

// below reports whether a slot has a key in a tier below the GPU.
func (ks *keyspace) below(key uint64, slot int) bool {
	return ks.sh.inTable(&ks.lower[TierCPU], key, slot) || ks.sh.inTable(&ks.lower[TierStorage], key, slot)
}

// blocks returns how many keys the keyspace keeps. The caller holds sh.mu.
func (ks *keyspace) blocks() int {
	n := ks.tree.Blocks()
	for i := range ks.lower {
		if t := ks.lower[i].Load(); t != nil {
			n += t.Len()
		}
	}
	return n
}

func (sh *shard) blocks() (n int) {
	for _, ks := range sh.keyspaces {
		if ks != nil {
			n += ks.blocks()
		}
	}
	return n
}
