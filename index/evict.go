package index

import (
	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/index/internal/radix"
)

// evictShare is the part of a cap that is evicted at once: an eviction reads all
// hashes of the holders of the evicted blocks.
const evictShare = 256

// evict drops at least n of a keyspace's blocks, if there are as many: the ends of old
// nodes except the spared one, then blocks below the GPU. It notes that of their holders,
// and returns how many blocks it has dropped.
func (sh *shard) evict(ks *keyspace, n int, spare uint32) (gone int) {
	most := min(sh.x.o.MaxScopeBlocks, sh.x.o.MaxBlocks)
	gone = sh.evictNodes(ks, max(n, most/evictShare), spare)
	for tier := TierCPU; tier < layers; tier++ {
		t := ks.lower[tier].Load()
		if t == nil {
			continue
		}
		for s := range t.All() {
			if gone >= n {
				break
			}
			sh.forgetBlock(ks, t, s, tier)
			gone++
		}
	}
	return gone
}

// evictNodes drops about n blocks at the ends of old nodes.
func (sh *shard) evictNodes(ks *keyspace, n int, spare uint32) (gone int) {
	ends := map[uint32]int{} // the new ends, by node
	var slots holderset.Mask
	now := minutes(sh.x.o.Now())
	for gone < n {
		id, end := ks.tree.OldestEnd(now, ends, spare)
		if id == 0 {
			break
		}
		to := max(end, sh.nodes.BlocksOf(id)-(n-gone))
		gone += sh.nodes.Behind(id, to, func(slot int) { slots.Put(slot, true) })
		ends[id] = to
	}
	for slot := range sh.info {
		if slots.Has(slot) && sh.info[slot].holder != nil {
			sh.info[slot].capped = true
			sh.forgetEnds(ks, slot, ends, false)
		}
	}
	sh.x.countEvicted(gone)
	return gone
}

// forgetEnds removes a slot from the ends of nodes, and returns of how many blocks. One
// pass over the holder's hashes finds them all. With left the engine is known to keep them: they are
// strays.
func (sh *shard) forgetEnds(ks *keyspace, slot int, ends map[uint32]int, left bool) (n int) {
	info := &sh.info[slot]
	if sh.slots.Live.Has(slot) { // nothing reads the hashes of a dead slot any more
		var gone []uint64
		info.gpu.Each(func(hash uint64, p radix.Place) {
			if end, ok := ends[p.Node()]; ok && p.Offset() >= end {
				k := copyKey{int32(ks.index), int32(slot), TierGPU, sh.nodes.Key(p)}
				if left {
					info.strays.add(hash, stray{ks, k.key, sh.nodes.Key(sh.nodes.Before(p)), 1 + sh.copies[k]}, false)
				}
				delete(sh.copies, k)
				gone = append(gone, hash)
			}
		})
		for _, hash := range gone {
			info.gpu.Take(hash)
		}
		n = len(gone)
		info.blocks[TierGPU] -= n
	}
	for id, end := range ends {
		sh.leave(slot, id, end)
	}
	return n
}

// leave removes a slot from a node's blocks, from an offset on.
func (sh *shard) leave(slot int, id uint32, from int) {
	sh.hybrid.Cut(slot, id, from)
	sh.info[slot].gpu.Leave(id, from)
}

// forgetBlock removes a block of one table from all its holders.
func (sh *shard) forgetBlock(ks *keyspace, t *hashtable.Table, s *hashtable.Row, tier Tier) {
	id := s.Set()
	sh.sets.Each(id, func(slot int) {
		info := &sh.info[slot]
		if info.holder == nil {
			return
		}
		info.blocks[tier]--
		info.capped = true
		delete(sh.copies, copyKey{int32(ks.index), int32(slot), tier, s.Key()})
	})
	t.Set(s, 0)
	sh.sets.Release(id)
	sh.x.countEvicted(1)
	if sh.evicted++; sh.evicted > sh.blocks()/2+4096 { // the hashes of evicted blocks stay within half of the blocks
		sh.forgetEvicted()
	}
}
