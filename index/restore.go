package index

import (
	"iter"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/radix"
	"warmroute/prefixhash"
)

// Restore stores the entries of a Snapshot, perhaps of another index, as if their
// holders had reported them. It begins the holders that have not begun, and skips
// the others. It reads all entries before it stores any, and drops blocks whose
// position in a prompt the entries do not give. A reporter that continues where
// the snapshot ended calls Resume instead of Begin.
func (x *Index) Restore(entries iter.Seq[Entry]) (res Result) {
	r := restorer{x: x, res: &res, begun: map[int]*holder{}, hashes: map[heldKey]uint64{}, behind: map[heldKey][]restored{}, at: map[heldKey]radix.Place{}}
	for e := range entries {
		r.read(&e)
	}
	for len(r.ready) > 0 {
		next := r.ready[len(r.ready)-1]
		r.ready = r.ready[:len(r.ready)-1]
		r.store(&next)
		r.ready = append(r.ready, r.behind[next.heldKey]...)
		delete(r.behind, next.heldKey)
	}
	for _, waiting := range r.behind { // their holders lack the parent
		r.rest = append(r.rest, waiting...)
	}
	for i := range r.rest {
		r.store(&r.rest[i])
	}
	return res
}

// Resume returns the incarnation of a holder that has begun, for a reporter
// that continues where a restored state ended.
func (x *Index) Resume(self Holder) (incarnation uint64, ok bool) {
	h := x.known(self)
	if h == nil {
		return 0, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.incarnation, h.incarnation != 0
}

// restorer is the state of Restore. It places a block behind a block of the same holder, so
// it never mistakes blocks of several holders for each other that have one key.
type restorer struct {
	x       *Index
	res     *Result
	holders numbers[Holder]
	scopes  numbers[Scope]
	begun   map[int]*holder // by number; nil: the holder had begun before, so Restore skips it
	hashes  map[heldKey]uint64
	behind  map[heldKey][]restored  // by the parent, which is not stored
	at      map[heldKey]radix.Place // of the blocks restored on GPU
	ready   []restored              // blocks that begin prompts, or whose parents are stored
	rest    []restored              // blocks below the GPU, and behind holes
}

// heldKey is a block of one holder.
type heldKey struct {
	scope, holder int
	key           prefixhash.Key
}

// restored is a block of one holder in a tier.
type restored struct {
	heldKey
	parent prefixhash.Key // on GPU; 0: it begins prompts
	tier   Tier
	extra  int // copies
}

// numbers numbers values.
type numbers[T comparable] struct {
	of  map[T]int
	all []T
}

func (n *numbers[T]) number(v T) int {
	i, known := n.of[v]
	if !known {
		if n.of == nil {
			n.of = map[T]int{}
		}
		i = len(n.all)
		n.of[v], n.all = i, append(n.all, v)
	}
	return i
}

// read sorts an entry's copies by what they wait for.
func (r *restorer) read(e *Entry) {
	scope := r.scopes.number(e.Scope)
	for _, c := range e.Copies {
		b := restored{heldKey: heldKey{scope, r.holders.number(c.Holder), e.Key}, tier: c.Tier, extra: c.Extra}
		switch {
		case e.HasHash:
			r.hashes[b.heldKey] = e.Hash
		case c.Tier >= tiers || r.holder(b.holder) == nil:
		case c.Tier != TierGPU:
			r.rest = append(r.rest, b)
		case e.First:
			r.ready = append(r.ready, b)
		case e.Parent != 0:
			b.parent = e.Parent
			r.behind[b.before()] = append(r.behind[b.before()], b)
		default:
			r.res.Dropped++
		}
	}
}

// before returns the parent.
func (b *restored) before() heldKey { return heldKey{b.scope, b.holder, b.parent} }

// holder returns a holder for its restored blocks, nil if it had begun before.
func (r *restorer) holder(number int) *holder {
	h, ok := r.begun[number]
	if !ok {
		self := r.holders.all[number]
		if _, begun := r.x.Resume(self); !begun {
			r.x.Begin(self)
			h = r.x.intern(self)
		}
		r.begun[number] = h
	}
	return h
}

// store stores a block behind its parent's place, or behind a hole.
func (r *restorer) store(b *restored) {
	h, scope := r.holder(b.holder), r.scopes.all[b.scope]
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sawGroup(scope, GroupUnknown)
	ks := r.x.lockKeyspace(scope, h.self.Replica)
	if ks == nil {
		r.res.Dropped += 1 + b.extra
		return
	}
	sh := ks.sh
	defer sh.mu.Unlock()
	slot, ok := sh.slotFor(h)
	if !ok {
		r.res.Dropped += 1 + b.extra
		return
	}
	key := hashtable.KeyOf(uint64(b.key))
	hash, named := r.hashes[b.heldKey]
	if !named {
		hash = key
	}
	before := ks.blocks()
	for range 1 + b.extra {
		one := segment{ks: ks, slot: slot, tier: b.tier, keys: []uint64{key}, hashes: []uint64{hash}}
		if b.parent != 0 {
			one.hasParent, one.parent = true, reference{sh.heldAt(ks, slot, r.at[b.before()], uint64(b.parent)), uint64(b.parent)}
		}
		sh.store(&one, r.res)
	}
	r.x.blocks.Add(int64(ks.blocks() - before))
	if p := sh.info[slot].gpu.Find(hash); p != 0 && b.tier == TierGPU {
		r.at[b.heldKey] = p
	}
}

// heldAt returns p if a slot holds the block with a key at p, else 0.
func (sh *shard) heldAt(ks *keyspace, slot int, p radix.Place, key uint64) radix.Place {
	if !sh.info[slot].gpu.Has(p, key) || sh.nodes.Tree(p) != ks.index {
		return 0
	}
	return p
}
