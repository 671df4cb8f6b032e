package index

import (
	"iter"
	"slices"

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
	r := restorer{x: x, res: &res, holders: map[Holder]*holder{}, blocks: map[scopedKey]*Entry{}, at: map[scopedKey]radix.Place{}, hashes: map[scopedKey][]Entry{}}
	var first []scopedKey
	for e := range entries {
		k := scopedKey{e.Scope, e.Key}
		if e.HasHash {
			r.hashes[k] = append(r.hashes[k], e)
			continue
		}
		if e.First {
			first = append(first, k)
		}
		r.blocks[k] = merged(r.blocks[k], &e)
	}
	for _, k := range first {
		r.place(k, 0)
	}
	for len(r.ready) > 0 || r.unplaced() {
		next := r.ready[len(r.ready)-1]
		r.ready = r.ready[:len(r.ready)-1]
		r.place(next.scopedKey, next.parent)
	}
	for k, e := range r.blocks { // copies below the GPU need no position in a prompt
		for _, c := range e.Copies {
			if c.Tier == TierGPU {
				res.Dropped++
				continue
			}
			r.copies(k, 0, c)
		}
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

type scopedKey struct {
	scope Scope
	key   prefixhash.Key
}

type restorer struct {
	x       *Index
	res     *Result
	holders map[Holder]*holder // nil: the holder had begun before, so Restore skips it
	blocks  map[scopedKey]*Entry
	hashes  map[scopedKey][]Entry
	at      map[scopedKey]radix.Place // places of the blocks restored on GPU
	ready   []waiting                 // blocks whose parents are stored
}

// merged adds up two entries of one block.
func merged(known, e *Entry) *Entry {
	if known == nil {
		return e
	}
	known.First = known.First || e.First
	for _, c := range e.Children {
		if !slices.Contains(known.Children, c) {
			known.Children = append(known.Children, c)
		}
	}
	known.Copies = append(known.Copies, e.Copies...)
	return known
}

// waiting is a block whose parent has been stored.
type waiting struct {
	scopedKey
	parent uint64
}

// unplaced makes ready the children of holes. A hole is a block that is no
// block's child and of which the entries have only the key.
func (r *restorer) unplaced() bool {
	child := map[scopedKey]bool{}
	for k, e := range r.blocks {
		for _, c := range e.Children {
			child[scopedKey{k.scope, c}] = true
		}
	}
	for k, e := range r.blocks {
		onGPU := slices.ContainsFunc(e.Copies, func(c Copy) bool { return c.Tier == TierGPU })
		if !onGPU && !child[k] { // a hole at the start of a chain
			r.place(k, 0)
		}
	}
	return len(r.ready) > 0
}

func (r *restorer) push(k scopedKey, e *Entry) {
	for _, c := range e.Children {
		r.ready = append(r.ready, waiting{scopedKey{k.scope, c}, uint64(k.key)})
	}
}

// place stores a block after its parent (0: it begins prompts) for all its
// holders, and makes its children ready.
func (r *restorer) place(k scopedKey, parent uint64) {
	e := r.blocks[k]
	if e == nil {
		return
	}
	delete(r.blocks, k)
	for _, c := range e.Copies {
		r.copies(k, parent, c)
	}
	r.push(k, e)
}

func (r *restorer) copies(k scopedKey, parent uint64, c Copy) {
	h := r.holder(c.Holder)
	if h == nil || c.Tier >= tiers {
		return
	}
	for range 1 + c.Extra {
		r.store(h, k, parent, c)
	}
}

// holder returns the holder for restored copies, nil when it had begun before.
func (r *restorer) holder(self Holder) *holder {
	h, ok := r.holders[self]
	if !ok {
		if _, begun := r.x.Resume(self); !begun {
			r.x.Begin(self)
			h = r.x.intern(self)
		}
		r.holders[self] = h
	}
	return h
}

func (r *restorer) store(h *holder, k scopedKey, parent uint64, c Copy) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sawGroup(k.scope, GroupUnknown)
	ks := r.x.lockKeyspace(k.scope, h.self.Replica)
	if ks == nil {
		r.res.Dropped++
		return
	}
	sh := ks.sh
	defer sh.mu.Unlock()
	slot, ok := sh.slotFor(h)
	if !ok {
		r.res.Dropped++
		return
	}
	key := hashtable.KeyOf(uint64(k.key))
	one := segment{ks: ks, slot: slot, tier: c.Tier, keys: []uint64{key}, hashes: []uint64{key}, hasParent: parent != 0}
	for _, e := range r.hashes[k] {
		if slices.ContainsFunc(e.Copies, func(o Copy) bool { return o.Holder == c.Holder }) {
			one.hashes = []uint64{e.Hash}
		}
	}
	if one.hasParent {
		one.parent = reference{sh.heldAt(ks, slot, r.at[scopedKey{k.scope, prefixhash.Key(parent)}], parent), parent}
	}
	before := ks.blocks()
	sh.store(&one, r.res)
	r.x.blocks.Add(int64(ks.blocks() - before))
	if p := sh.info[slot].gpu.Find(one.hashes[0]); p != 0 && c.Tier == TierGPU {
		r.at[k] = p
	}
}

// heldAt returns p if a slot holds the block with a key at p, else 0.
func (sh *shard) heldAt(ks *keyspace, slot int, p radix.Place, key uint64) radix.Place {
	if !sh.info[slot].gpu.Has(p, key) || sh.nodes.Tree(p) != ks.index {
		return 0
	}
	return p
}
