package index

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"warmroute/index/internal/radix"
	"warmroute/prefixhash"
)

// Entry is a block of a holder in a tier.
type Entry struct {
	Scope  Scope
	Holder Holder
	Tier   Tier
	Key    prefixhash.Key
	Hash   uint64         // by which the holder's events name the block
	Parent prefixhash.Key // of a block on GPU: the block before it; 0: it begins prompts
	Extra  int            // copies beyond the first

	depth int32 // of the first block of its node
	place radix.Place
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

// Snapshot yields the blocks that holders have reported: of each holder's cache of a model the
// blocks at one time, each behind its parent, then strays, whose parents are missing. It leaves out leases. Ingest of a model
// waits while the blocks of one holder are read.
func (x *Index) Snapshot() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, sh := range x.allShards() {
			for slot, more := 0, true; more; slot++ {
				var entries []Entry
				entries, more = sh.collect(slot)
				slices.SortFunc(entries, func(a, b Entry) int {
					return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.place, b.place))
				})
				for _, e := range entries {
					if !yield(e) {
						return
					}
				}
			}
		}
	}
}

// collect returns the blocks of a slot's holder, and false behind the last slot.
func (sh *shard) collect(slot int) (out []Entry, more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if slot >= len(sh.info) || sh.x.closed.Load() {
		return nil, false
	}
	info := &sh.info[slot]
	if !sh.slots.Live.Has(slot) || info.holder.grouped() {
		return nil, true
	}
	add := func(ks *keyspace, tier Tier, e Entry) {
		e.Scope, e.Holder, e.Tier = ks.scope, info.holder.self, tier
		e.Extra += int(sh.copies[copyKey{int32(ks.index), int32(slot), tier, uint64(e.Key)}])
		out = append(out, e)
	}
	info.gpu.Each(func(hash uint64, p radix.Place) {
		e := Entry{Key: prefixhash.Key(sh.nodes.Key(p)), Hash: hash, depth: int32(sh.nodes.Depth(p.Node())), place: p}
		if before := sh.nodes.Before(p); before != 0 {
			e.Parent = prefixhash.Key(sh.nodes.Key(before))
		}
		add(sh.keyspaces[sh.nodes.Tree(p)], TierGPU, e)
	})
	for hash, one := range info.strays.of {
		if one.before != 0 {
			add(one.ks, TierGPU, Entry{Key: prefixhash.Key(one.key), Hash: hash, Parent: prefixhash.Key(one.before), Extra: int(one.copies) - 1, depth: math.MaxInt32})
		}
	}
	for index, names := range info.lower {
		ks := sh.keyspaces[index]
		names.Each(func(hash, key uint64) bool {
			for tier := TierCPU; tier < tiers; tier++ {
				if sh.inTable(&ks.lower[tier], key, slot) {
					add(ks, tier, Entry{Key: prefixhash.Key(key), Hash: hash})
				}
			}
			return true
		})
	}
	return out, true
}
