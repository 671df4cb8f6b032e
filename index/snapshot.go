package index

import (
	"iter"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/index/internal/radix"
	"warmroute/prefixhash"
)

// Entry is a part of a Snapshot about one block or one hash. Several entries may
// be about one block; they add up.
type Entry struct {
	Scope Scope
	Key   prefixhash.Key

	// Hash is a hash of Key's block, with HasHash. Then Copies has the holders
	// that use it, and the fields below are empty.
	HasHash bool
	Hash    uint64

	First  bool           // the block begins prompts
	Parent prefixhash.Key // the block before it; 0: unknown, or the block begins prompts
	Copies []Copy
}

// Copy records that a holder has a block in a tier, Extra times more than once.
type Copy struct {
	Holder Holder
	Tier   Tier
	Extra  int
}

// Cursor is a place in the stream of batches that a holder publishes, and the way
// to read them. Between the first and the second read of one cursor, the index
// held the outcome of every batch before the first's Next and of none from the
// second's Begun on.
type Cursor struct {
	Holder   Holder
	Next     uint64 // sequence of the first batch that is not applied
	Begun    uint64 // sequence of the first batch whose application has not begun
	Digest   uint64 // XXH64 of the payload of the batch before Next, which differs between two lives of a publisher
	Complete bool   // every batch since the publisher's start is applied

	Incarnation uint64 // the holder's

	Tenant, Model, Scheme string
	Full                  bool
}

// Snapshot yields the blocks that holders have reported, in no order. It leaves
// out leases and orphans. Ingest waits while one part of a scope is collected;
// Snapshot may miss changes made meanwhile.
func (x *Index) Snapshot() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, sh := range x.allShards() {
			for _, collect := range sh.collectors() {
				sh.mu.Lock()
				var entries []Entry
				if !x.closed.Load() {
					entries = collect()
				}
				sh.mu.Unlock()
				for _, e := range entries {
					if !yield(e) {
						return
					}
				}
			}
		}
	}
}

// collectors returns functions that each collect a part, with sh.mu held.
func (sh *shard) collectors() (all []func() []Entry) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for page := 0; page < sh.nodes.Pages(); page++ {
		all = append(all, func() []Entry { return sh.collectNodes(page) })
	}
	for slot := range sh.info {
		all = append(all, func() []Entry { return sh.collectHashes(slot) })
	}
	for _, ks := range sh.keyspaces {
		for tier := TierCPU; ks != nil && tier < tiers; tier++ {
			for q := range hashtable.Parts {
				all = append(all, func() []Entry { return sh.collectLower(ks, tier, q) })
			}
		}
	}
	return all
}

// collectNodes gathers the blocks of one page of nodes.
func (sh *shard) collectNodes(page int) (out []Entry) {
	for node := range sh.nodes.Page(page) {
		ks, base, before := sh.keyspaces[node.Tree], len(out), node.Before
		for _, key := range node.Keys {
			out = append(out, Entry{Scope: ks.scope, Key: prefixhash.Key(key), First: before == 0, Parent: prefixhash.Key(before)})
			before = key
		}
		from := 0
		for _, r := range node.Runs {
			for off := from; off < r.End; off++ {
				out[base+off].Copies = sh.copiesOf(ks, node.Keys[off], r.Set, TierGPU)
			}
			from = r.End
		}
	}
	return out
}

// copiesOf lists a set's live holders of a block.
func (sh *shard) copiesOf(ks *keyspace, key uint64, set holderset.ID, tier Tier) (all []Copy) {
	sh.sets.Each(set, func(slot int) {
		if sh.slots.Live.Has(slot) && !sh.info[slot].holder.grouped() {
			extra := sh.copies[copyKey{int32(ks.index), int32(slot), tier, key}]
			all = append(all, Copy{sh.info[slot].holder.self, tier, int(extra)})
		}
	})
	return all
}

// collectHashes gathers a holder's hashes of its blocks, and its detached blocks.
func (sh *shard) collectHashes(slot int) (out []Entry) {
	info := &sh.info[slot]
	if !sh.slots.Live.Has(slot) || info.holder.grouped() {
		return nil
	}
	add := func(ks *keyspace, hash, key uint64) {
		out = append(out, Entry{Scope: ks.scope, Key: prefixhash.Key(key), HasHash: true, Hash: hash, Copies: []Copy{{Holder: info.holder.self}}})
	}
	info.gpu.Each(func(hash uint64, p radix.Place) { add(sh.keyspaces[sh.nodes.Tree(p)], hash, sh.nodes.Key(p)) })
	for index, l := range info.lower {
		l.Each(func(hash, key uint64) bool {
			if info.gpu.Find(hash) == 0 {
				add(sh.keyspaces[index], hash, key)
			}
			return true
		})
	}
	for hash, b := range info.detached {
		ks := sh.keyspaces[b.keyspace]
		add(ks, hash, b.key)
		out = append(out, Entry{Scope: ks.scope, Key: prefixhash.Key(b.key), Parent: prefixhash.Key(b.parent), Copies: []Copy{{info.holder.self, TierGPU,
			int(sh.copies[copyKey{int32(ks.index), int32(slot), TierGPU, b.key}])}}})
	}
	return out
}

// collectLower gathers the blocks of one array of a tier below the GPU.
func (sh *shard) collectLower(ks *keyspace, tier Tier, q int) (out []Entry) {
	t := ks.lower[tier].Load()
	if t == nil || ks.dropped {
		return nil
	}
	for s := range t.Each(q) {
		if copies := sh.copiesOf(ks, s.Key(), s.Value().Set(), tier); len(copies) > 0 {
			out = append(out, Entry{Scope: ks.scope, Key: prefixhash.Key(s.Key()), Copies: copies})
		}
	}
	return out
}
