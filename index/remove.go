package index

import (
	"slices"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/radix"
)

// removed applies a Removed event. h.mu is held.
func (x *Index) removed(h *holder, ev *Event, res *Result) {
	if ev.Tier >= tiers {
		res.Dropped += len(ev.Hashes)
		return
	}
	rest := len(ev.Hashes)
	of := func(k *shardKey) bool { return k.group == ev.Scope.Group && ev.Part.covers(*k) }
	for sh, slot := range h.in(of) { // several may have blocks of one hash: of other models, or of other schemes
		before := sh.blocks()
		rest -= sh.remove(slot, ev.Tier, ev.Hashes, res)
		if ev.Tier == TierGPU && len(h.ends) > 0 {
			rest -= sh.remove(slot, tierLeased, ev.Hashes, res)
		}
		x.blocks.Add(int64(sh.blocks() - before))
	}
	res.Unknown += max(0, rest)
}

// remove removes blocks of a holder and returns how many it had. sh.mu is held.
func (sh *shard) remove(slot int, tier Tier, hashes []uint64, res *Result) (known int) {
	w := removing{sh: sh, slot: slot, tier: tier, res: res, info: &sh.info[slot]}
	if w.ascending(hashes) {
		sh.keys = append(sh.keys[:0], hashes...)
		slices.Reverse(sh.keys)
		hashes = sh.keys
	}
	for len(hashes) > 0 {
		if n := w.removeEnd(hashes); n > 0 {
			known, hashes = known+n, hashes[n:]
			continue
		}
		if w.removeOne(hashes[0]) {
			known++
		}
		hashes = hashes[1:]
	}
	w.flush()
	return known
}

// removing is the state while blocks of one holder are removed.
type removing struct {
	sh   *shard
	slot int
	tier Tier
	res  *Result
	info *slotInfo

	// The blocks removed from the end of the holder's part of a node. The node itself has
	// not been updated yet.
	node     uint32
	ks       *keyspace
	from, to int
	watched  bool // there are copies or twins
	every    bool // all copies of a block are removed
}

// ascending reports whether the hashes are of blocks from the first of a stretch to the
// last: one by one, each removal would leave a hole before the others.
func (w *removing) ascending(hashes []uint64) bool {
	if w.tier != TierGPU || len(hashes) < 2 {
		return false
	}
	first, second := w.info.gpu.Find(hashes[0]), w.info.gpu.Find(hashes[1])
	return first != 0 && second == first+1
}

// removeEnd removes blocks from the end of the holder's part of the current node, and
// returns how many.
func (w *removing) removeEnd(hashes []uint64) (n int) {
	if w.from > 0 && !w.watched {
		n = w.info.gpu.ForgetEnd(radix.At(w.node, w.from-1), hashes)
		w.from -= n
		w.count(n)
	}
	return n
}

// removeOne removes any block, and reports whether the holder had it.
func (w *removing) removeOne(hash uint64) bool {
	if w.tier != TierGPU {
		return w.removeLower(hash)
	}
	at, p := w.info.gpu.Locate(hash)
	if p == 0 {
		w.info.strays.remove(hash)
		return w.removeTwin(hash)
	}
	if p.Node() != w.node {
		w.moveTo(p)
	}
	if w.watched {
		key := w.sh.nodes.Key(p)
		if w.copyLeft(w.ks, key) || w.inherit(hash, at, p, key) {
			return true
		}
	}
	w.info.gpu.Forget(hash, at)
	w.count(1)
	if p.Offset() != w.from-1 || w.info.gpu.Branches(p) {
		w.removeInside(p)
		return true
	}
	w.from--
	return true
}

func (w *removing) count(n int) {
	w.info.blocks[w.tier] -= n
	w.res.Removed += n
}

// moveTo continues with another node.
func (w *removing) moveTo(p radix.Place) {
	w.flush()
	w.node, w.ks = p.Node(), w.sh.keyspaces[w.sh.nodes.Tree(p)]
	w.to = w.info.gpu.Held(w.node)
	w.from = w.to
	w.watched = len(w.sh.copies) > 0 || len(w.info.twins.of) > 0
}

// flush removes the holder from the removed blocks in their node.
func (w *removing) flush() {
	if w.from < w.to {
		w.info.holder.removals.stretch(w.sh, w.node, w.from, w.to)
		w.sh.leave(w.slot, w.node, w.from)
	}
	w.node, w.from, w.to = 0, 0, 0
}

// removeInside removes a block that other blocks of the holder follow. No prompt hits these until it
// is stored again: they are strays.
func (w *removing) removeInside(p radix.Place) {
	w.flush()
	behind := map[uint32]int{p.Node(): p.Offset()}
	w.info.gpu.Follow(p.Node(), p.Offset(), behind)
	removals := &w.info.holder.removals
	for id, from := range behind {
		removals.stretch(w.sh, id, from, w.info.gpu.Held(id))
	}
	removals.open = nil // removals before these are others
	w.res.Orphaned += w.sh.forgetEnds(w.ks, w.slot, behind, true)
}

// removeLower removes a block from a tier below the GPU, in every scope.
func (w *removing) removeLower(hash uint64) (had bool) {
	for _, ks := range w.sh.keyspaces {
		had = ks != nil && w.removeFrom(ks, hash) || had
	}
	return had
}

// removeFrom removes a block from a tier below the GPU in one keyspace.
func (w *removing) removeFrom(ks *keyspace, hash uint64) (had bool) {
	t := ks.lower[w.tier].Load()
	if t == nil {
		return false
	}
	key, names := hashtable.KeyOf(hash), w.info.lower[ks.index]
	switch {
	case w.tier == tierLeased:
	case names == nil:
		return false
	default:
		key = names.Get(hash)
	}
	s := t.Find(key)
	if !w.sh.rowHas(s, w.slot) {
		return false
	}
	if w.copyLeft(ks, key) || !w.sh.toggleIn(t, s, w.slot) {
		return true
	}
	w.count(1)
	if w.tier != tierLeased && !ks.below(key, w.slot) {
		names.Delete(hash)
	}
	return true
}

// copyLeft removes one of several copies, and reports whether there were several.
func (w *removing) copyLeft(ks *keyspace, key uint64) bool {
	if len(w.sh.copies) == 0 {
		return false
	}
	k := copyKey{int32(ks.index), int32(w.slot), w.tier, key}
	n := w.sh.copies[k]
	switch {
	case n == 0:
		return false
	case w.every:
		delete(w.sh.copies, k)
		return false
	case n == 1:
		delete(w.sh.copies, k)
	default:
		w.sh.copies[k] = n - 1
	}
	w.res.Copies++
	return true
}
