package index

import (
	"iter"

	"warmroute/index/internal/hashtable"
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

// restore stores a block and notes its hash. A block whose parent was not restored is a stray.
func (x *Index) restore(h *holder, e *Entry, hashes map[restored]uint64, res *Result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ks *keyspace
	if e.Tier < tiers {
		ks = h.lockKeyspace(&e.Scope)
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
			gpu := &sh.info[slot].gpu
			one.before = gpu.Find(hashes[restored{ks, slot, parent}])
			if !gpu.Has(one.before, parent) || sh.nodes.Tree(one.before) != ks.index {
				sh.leaveOut(&one, parent)
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
