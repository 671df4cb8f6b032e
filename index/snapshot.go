package index

import (
	"iter"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/prefixhash"
)

// Entry is a part of what a Snapshot says of one block, or of one engine hash:
// several entries may name a block, and are true together.
type Entry struct {
	Scope Scope
	Key   prefixhash.Key

	// Engine is a hash that engines use for Key, when HasEngine. Then Copies
	// names those that use it, and the fields below are empty.
	HasEngine bool
	Engine    uint64

	First    bool             // the block begins prompts
	Children []prefixhash.Key // blocks that follow it
	Copies   []Copy
}

// Copy says that a holder has a block in a tier, more than once when Extra > 0.
type Copy struct {
	Holder Holder
	Tier   Tier
	Extra  int
}

// Cursor is a place in the stream of batches that a holder publishes, together
// with how they are read. Between the first and the second read of one, the
// index held the outcome of every batch before the first's Next and of none from
// the second's Begun on.
type Cursor struct {
	Holder Holder
	Next   uint64 // sequence of the first batch that is not applied
	Begun  uint64 // sequence of the first batch whose application has not begun
	Digest uint64 // XXH64 of the payload of the batch before Next, which tells lives of a publisher apart
	Whole  bool   // everything since the publisher's start is applied

	Incarnation uint64 // the holder's

	Tenant, Model, Scheme string
	Full                  bool
}

// Snapshot yields what the holders have reported, in no order: not what was
// only speculated, learned, or given to Report, and no orphans. Ingest waits
// for the collection of a part of a scope at a time; what changes meanwhile may
// or may not be there.
func (x *Index) Snapshot() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, d := range x.allDomains() {
			for _, collect := range d.collectors() {
				d.mu.Lock()
				var entries []Entry
				if !x.closed.Load() {
					entries = collect()
				}
				d.mu.Unlock()
				for _, e := range entries {
					if !yield(e) {
						return
					}
				}
			}
		}
	}
}

// collectors are the parts of a snapshot, each to be called with d.mu held.
func (d *domain) collectors() (all []func() []Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for page := 0; page < len(*d.stems.pages.Load()); page++ {
		all = append(all, func() []Entry { return d.collectStems(page) })
	}
	for slot := range d.info {
		all = append(all, func() []Entry { return d.collectNames(slot) })
	}
	for _, sp := range d.spaces {
		for tier := TierCPU; sp != nil && tier < tiers; tier++ {
			for q := range hashtable.Parts {
				all = append(all, func() []Entry { return d.collectLower(sp, tier, q) })
			}
		}
	}
	return all
}

// collectStems gathers the blocks of one page of stems.
func (d *domain) collectStems(page int) (out []Entry) {
	for id := page * stemsPerPage; id < (page+1)*stemsPerPage && id <= int(d.stems.made); id++ {
		st := d.stems.at(uint32(id))
		sp, n := d.spaces[st.space], st.blocks()
		if n == 0 {
			continue
		}
		base := len(out)
		keys := st.array(n)
		for off, key := range keys {
			e := Entry{Scope: sp.scope, Key: prefixhash.Key(key), First: off == 0 && st.parent == 0}
			if off+1 < n {
				e.Children = []prefixhash.Key{prefixhash.Key(keys[off+1])}
			}
			out = append(out, e)
		}
		for c := st.child; c != 0; c = d.stems.at(c).next {
			child := d.stems.at(c)
			e := &out[base+child.parent.off()]
			e.Children = append(e.Children, prefixhash.Key(child.key(0)))
		}
		from := 0
		for _, l := range st.appendLevels(nil) {
			for off := from; off < l.end; off++ {
				out[base+off].Copies = d.copiesOf(sp, keys[off], l.set, TierGPU)
			}
			from = l.end
		}
	}
	return out
}

// copiesOf lists a set's live holders of a block.
func (d *domain) copiesOf(sp *space, key uint64, set holderset.ID, tier Tier) (all []Copy) {
	d.sets.Each(set, func(slot int) {
		if d.slots.Live.Has(slot) && !d.info[slot].holder.grouped() {
			extra := d.copies[copyKey{int32(sp.index), int32(slot), tier, key}]
			all = append(all, Copy{d.info[slot].holder.self, tier, int(extra)})
		}
	})
	return all
}

// collectNames gathers what a holder calls its blocks, and those of them that
// are stranded.
func (d *domain) collectNames(slot int) (out []Entry) {
	info := &d.info[slot]
	if !d.slots.Live.Has(slot) || info.holder.grouped() {
		return nil
	}
	name := func(sp *space, hash, key uint64) {
		out = append(out, Entry{Scope: sp.scope, Key: prefixhash.Key(key), HasEngine: true, Engine: hash, Copies: []Copy{{Holder: info.holder.self}}})
	}
	info.eachName(&d.stems, func(hash uint64, p pos) {
		st := d.stems.at(p.stem())
		name(d.spaces[st.space], hash, st.key(p.off()))
	})
	for index, l := range info.lower {
		l.Each(func(hash, key uint64) bool {
			if info.find(&d.stems, hash) == 0 {
				name(d.spaces[index], hash, key)
			}
			return true
		})
	}
	for hash, b := range info.stranded {
		sp := d.spaces[b.space]
		name(sp, hash, b.key)
		out = append(out,
			Entry{Scope: sp.scope, Key: prefixhash.Key(b.parent), Children: []prefixhash.Key{prefixhash.Key(b.key)}},
			Entry{Scope: sp.scope, Key: prefixhash.Key(b.key), Copies: []Copy{{info.holder.self, TierGPU,
				int(d.copies[copyKey{int32(sp.index), int32(slot), TierGPU, b.key}])}}})
	}
	return out
}

// collectLower gathers the blocks of one array of a tier below the GPU.
func (d *domain) collectLower(sp *space, tier Tier, q int) (out []Entry) {
	t := sp.lower[tier].Load()
	if t == nil || sp.dropped {
		return nil
	}
	for s := range t.Each(q) {
		if copies := d.copiesOf(sp, s.Key(), s.Value().Set(), tier); len(copies) > 0 {
			out = append(out, Entry{Scope: sp.scope, Key: prefixhash.Key(s.Key()), Copies: copies})
		}
	}
	return out
}
