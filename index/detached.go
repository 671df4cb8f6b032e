package index

import (
	"slices"

	"warmroute/index/internal/radix"
)

// detachedBlock is a block on GPU whose holder lacks a block before it. The index
// finds it by its holder's hash, and by its parent's key when the parent is stored.
type detachedBlock struct {
	keyspace    int
	key, parent uint64
}

type keyspaceKey struct {
	keyspace int
	key      uint64
}

// detach keeps a block for a slot. The caller has counted it. It fails when the
// slot has the block by another hash, or there are too many different sets.
func (sh *shard) detach(slot int, hash uint64, b detachedBlock) bool {
	ks, info := sh.keyspaces[b.keyspace], &sh.info[slot]
	t := ks.flat(&ks.detached)
	s := t.Insert(b.key)
	if sh.rowHas(s, slot) || !sh.toggleIn(t, s, slot) {
		return false
	}
	info.wait(hash, b, true)
	return true
}

// reattach removes a detached block.
func (sh *shard) reattach(slot int, hash uint64, b detachedBlock) {
	info, t := &sh.info[slot], sh.keyspaces[b.keyspace].detached.Load()
	if s := t.Find(b.key); sh.rowHas(s, slot) {
		sh.toggleIn(t, s, slot)
	}
	info.wait(hash, b, false)
}

// wait records that a block waits for its parent, or no longer does.
func (i *slotInfo) wait(hash uint64, b detachedBlock, on bool) {
	if i.detached == nil {
		i.detached, i.behind = map[uint64]detachedBlock{}, map[keyspaceKey][]uint64{}
	}
	k := keyspaceKey{b.keyspace, b.parent}
	if on {
		i.detached[hash] = b
		i.behind[k] = append(i.behind[k], hash)
		return
	}
	delete(i.detached, hash)
	if i.behind[k] = slices.DeleteFunc(i.behind[k], func(other uint64) bool { return other == hash }); len(i.behind[k]) == 0 {
		delete(i.behind, k)
	}
}

// behindHole stores blocks whose parent is not visible on GPU: the holder lacks it,
// or has it detached or below the GPU.
func (w *storing) behindHole() {
	sh, ks, slot := w.sh, w.segment.ks, w.segment.slot
	parent := w.segment.parent.key
	for ; len(w.keys) > 0; w.keys, w.hashes = w.keys[1:], w.hashes[1:] {
		key, hash := w.keys[0], w.hashes[0]
		b, known := w.info.detached[hash]
		if w.info.gpu.Find(hash) != 0 || known && (b.key != key || b.keyspace != ks.index) {
			return
		}
		if known {
			w.countCopy(key)
		} else {
			t := ks.flat(&ks.detached)
			if s := t.Find(key); (s == nil || s.Value().Set() == 0) && w.admit(1, 0) == 0 {
				return
			}
			if !sh.detach(slot, hash, detachedBlock{ks.index, key, parent}) {
				return
			}
			w.info.blocks[TierGPU]++
			w.res.Stored++
		}
		parent = key
	}
}

// promote makes the blocks visible that waited for a block, which is now visible at
// p.
func (w *storing) promote(p radix.Place, key uint64) {
	sh, ks := w.sh, w.segment.ks
	type ready struct {
		at  radix.Place
		key uint64
	}
	for stack := []ready{{p, key}}; len(stack) > 0; {
		r := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		waiting := w.info.behind[keyspaceKey{ks.index, r.key}]
		for _, hash := range slices.Clone(waiting) {
			b := w.info.detached[hash]
			sh.reattach(w.segment.slot, hash, b)
			one := storing{sh: sh, segment: w.segment, res: w.res, info: w.info, keys: []uint64{b.key}, hashes: []uint64{hash}, at: r.at, free: max(1, w.free), counted: true}
			if one.storeSome(1) {
				stack = append(stack, ready{one.at, b.key})
				continue
			}
			w.info.blocks[TierGPU]--
		}
	}
}

// detachBehind detaches a slot's visible blocks from the given offsets of nodes on,
// because the blocks before them are gone. One pass over the holder's hashes finds
// them all.
func (sh *shard) detachBehind(slot int, from map[uint32]int) {
	info := &sh.info[slot]
	type moved struct {
		hash uint64
		detachedBlock
	}
	var all []moved
	info.gpu.Each(func(hash uint64, p radix.Place) {
		first, ok := from[p.Node()]
		if !ok || p.Offset() < first {
			return
		}
		b := detachedBlock{sh.nodes.Tree(p), sh.nodes.Key(p), sh.nodes.Key(sh.nodes.Before(p))}
		all = append(all, moved{hash, b})
	})
	for _, m := range all {
		info.gpu.Take(m.hash)
	}
	for id, first := range from {
		sh.leave(slot, id, first)
	}
	for _, m := range all {
		if !sh.detach(slot, m.hash, m.detachedBlock) {
			info.blocks[TierGPU]--
		}
	}
}

// leave removes a slot from a node's blocks, from an offset on.
func (sh *shard) leave(slot int, id uint32, from int) {
	sh.hybrid.Cut(slot, id, from)
	sh.info[slot].gpu.Leave(id, from)
}
