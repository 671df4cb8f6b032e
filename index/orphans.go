package index

import (
	"slices"

	"warmroute/prefixhash"
)

// orphans holds blocks whose parent's key is not known yet: their hashes and contents, by
// the parent's hash. It is bounded and drops the oldest first. The shard's writer owns it.
type orphans struct {
	waiting map[orphanBlock][]*orphan // by the parent
	at      map[orphanBlock][]*orphan
	queue   []*orphan // oldest first; joined and dropped orphans have no blocks
	blocks  int
}

type orphanBlock struct {
	slot int
	hash uint64
}

// orphan is the blocks of one event. Removed blocks stay, as links to their successors.
type orphan struct {
	segment  segment
	parent   uint64
	contents []prefixhash.Content
	removed  map[uint64]bool
}

func (o *orphans) init() {
	o.waiting = map[orphanBlock][]*orphan{}
	o.at = map[orphanBlock][]*orphan{}
}

// addOrphan keeps a segment until its parent is stored. sh.mu is held.
func (sh *shard) addOrphan(r *segment, parent uint64, contents []prefixhash.Content, res *Result) {
	o := &sh.orphans
	n := len(contents)
	if n > sh.x.o.MaxOrphans {
		res.Dropped += n
		sh.info[r.slot].capped = true
		sh.partial.Put(r.slot, true)
		return
	}
	for o.blocks+n > sh.x.o.MaxOrphans {
		oldest := o.queue[0]
		o.queue = o.queue[1:]
		if m := len(oldest.contents); m > 0 {
			res.Dropped += m
			sh.info[oldest.segment.slot].capped = true
			sh.partial.Put(oldest.segment.slot, true)
			o.forget(oldest)
		}
	}
	p := &orphan{segment: *r, parent: parent, contents: append([]prefixhash.Content(nil), contents...)}
	p.segment.hashes = append([]uint64(nil), r.hashes...)
	p.segment.keys = nil
	k := orphanBlock{r.slot, parent}
	o.waiting[k] = append(o.waiting[k], p)
	for _, hash := range p.segment.hashes {
		k := orphanBlock{r.slot, hash}
		o.at[k] = append(o.at[k], p)
	}
	o.queue = append(o.queue, p)
	o.blocks += n
	res.Orphaned += n
}

// forget removes an orphan from all lists but the queue.
func (o *orphans) forget(p *orphan) {
	without(o.waiting, orphanBlock{p.segment.slot, p.parent}, p)
	o.release(p)
}

// release ends the accounting of an orphan; the queue skips it later.
func (o *orphans) release(p *orphan) {
	for _, hash := range p.segment.hashes {
		without(o.at, orphanBlock{p.segment.slot, hash}, p)
	}
	o.blocks -= len(p.contents)
	p.contents = nil
	if o.blocks == 0 {
		o.queue = nil
	}
}

// without removes p from one of a map's lists.
func without[K comparable](m map[K][]*orphan, k K, p *orphan) {
	list := m[k]
	if i := slices.Index(list, p); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(m, k)
	} else {
		m[k] = list
	}
}

// takeWaiting moves the orphans of a slot that waited for hash to list.
func (o *orphans) takeWaiting(slot int, hash uint64, list *[]*orphan) {
	k := orphanBlock{slot, hash}
	if waiting := o.waiting[k]; waiting != nil {
		*list = append(*list, waiting...)
		delete(o.waiting, k)
	}
}

// remove records that an orphan's block was evicted.
func (o *orphans) remove(slot int, tier Tier, hash uint64) bool {
	list := o.at[orphanBlock{slot, hash}]
	for i := len(list) - 1; i >= 0; i-- {
		p := list[i]
		if p.segment.tier != tier || p.removed[hash] {
			continue
		}
		if p.removed == nil {
			p.removed = map[uint64]bool{}
		}
		p.removed[hash] = true
		if len(p.removed) == len(p.segment.hashes) {
			o.forget(p)
		}
		return true
	}
	return false
}

// storeJoined stores the orphans in sh.joined, whose parent is stored now, and the orphans
// that wait for these.
func (sh *shard) storeJoined(res *Result) {
	var evicted []*orphan
	for len(sh.joined) > 0 {
		p := sh.joined[len(sh.joined)-1]
		sh.joined = sh.joined[:len(sh.joined)-1]
		contents := p.contents
		sh.orphans.release(p)
		if !sh.slots.Live.Has(p.segment.slot) {
			continue
		}
		at, known := sh.resolve(p.segment.ks, p.segment.slot, p.parent)
		if !known {
			res.Dropped += len(contents)
			continue
		}
		r := p.segment
		r.parent = at
		sh.keys = linkAll(sh.keys[:0], at.key, contents)
		r.keys = sh.keys
		sh.store(&r, res)
		r.cancel(sh.info[r.slot].holder.id)
		if len(p.removed) > 0 {
			evicted = append(evicted, p)
		}
	}
	for _, p := range evicted { // only now: other orphans were linked through them
		sh.dropRemoved(p, res)
	}
}

// dropRemoved removes the blocks that were evicted while they waited.
func (sh *shard) dropRemoved(p *orphan, res *Result) {
	var hashes []uint64
	for _, hash := range p.segment.hashes {
		if p.removed[hash] {
			hashes = append(hashes, hash)
		}
	}
	var again Result
	sh.remove(p.segment.slot, p.segment.tier, hashes, &again)
	res.Stored -= again.Removed
}
