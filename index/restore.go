package index

import (
	"iter"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/radix"
)

// Restore stores the entries of a Snapshot, perhaps of another index, as if their
// holders had reported them. It begins the holders that have not begun, and skips
// the others. A reporter that continues where the snapshot ended calls Resume
// instead of Begin.
func (x *Index) Restore(entries iter.Seq[Entry]) (res Result) {
	begun := map[Holder]*holder{} // nil: it had begun before
	hashes := map[restored]uint64{}
	for e := range entries {
		h, known := begun[e.Holder]
		if !known {
			if _, has := x.Resume(e.Holder); !has {
				x.Begin(e.Holder)
				h = x.intern(e.Holder)
			}
			begun[e.Holder] = h
		}
		if h != nil {
			x.restore(h, &e, hashes, &res)
		}
	}
	return res
}

// restored is a block on GPU.
type restored struct {
	ks   *keyspace
	slot int
	key  uint64
}

// restore stores a block and notes its hash. A block whose parent was not restored is left out.
func (x *Index) restore(h *holder, e *Entry, hashes map[restored]uint64, res *Result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ks *keyspace
	if e.Tier < tiers {
		ks = x.lockKeyspace(e.Scope, h.self.Replica)
	}
	if ks == nil {
		res.Dropped += 1 + e.Extra
		return
	}
	sh := ks.sh
	defer sh.mu.Unlock()
	slot, ok := sh.slotFor(h)
	if !ok {
		res.Dropped += 1 + e.Extra
		return
	}
	key := hashtable.KeyOf(uint64(e.Key))
	before := ks.blocks()
	for range 1 + e.Extra {
		one := segment{ks: ks, slot: slot, tier: e.Tier, keys: []uint64{key}, hashes: []uint64{e.Hash}}
		if parent := uint64(e.Parent); parent != 0 && e.Tier == TierGPU {
			if one.before = sh.heldAt(ks, slot, sh.info[slot].gpu.Find(hashes[restored{ks, slot, parent}]), parent); one.before == 0 {
				res.Orphaned++
				continue
			}
		}
		sh.store(&one, res)
	}
	x.blocks.Add(int64(ks.blocks() - before))
	if e.Tier == TierGPU {
		hashes[restored{ks, slot, key}] = e.Hash
	}
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

// heldAt returns p if a slot holds the block with a key at p, else 0.
func (sh *shard) heldAt(ks *keyspace, slot int, p radix.Place, key uint64) radix.Place {
	if !sh.info[slot].gpu.Has(p, key) || sh.nodes.Tree(p) != ks.index {
		return 0
	}
	return p
}
