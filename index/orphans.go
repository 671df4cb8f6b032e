package index

import (
	"slices"

	"warmroute/prefixhash"
)

// orphans are blocks whose parent's key is not known yet: hashes and contents
// only, by what the holder calls the parent, bounded, oldest out first. The domain's
// writer owns them.
type orphans struct {
	waiting map[orphanBlock][]*parked // by the parent
	at      map[orphanBlock][]*parked
	queue   []*parked // oldest first; joined and dropped ones have no blocks
	blocks  int
}

type orphanBlock struct {
	slot int
	hash uint64
}

// parked is one event's blocks. Removed ones stay to link their successors.
type parked struct {
	run      run
	parent   uint64
	contents []prefixhash.Content
	removed  map[uint64]bool
}

func (o *orphans) init() {
	o.waiting = map[orphanBlock][]*parked{}
	o.at = map[orphanBlock][]*parked{}
}

// park keeps a run until its parent is stored. d.mu is held.
func (d *domain) park(r *run, parent uint64, contents []prefixhash.Content, res *Result) {
	o := &d.orphans
	n := len(contents)
	if n > d.x.o.MaxOrphans {
		res.Dropped += n
		d.partial.Put(r.slot, true)
		return
	}
	for o.blocks+n > d.x.o.MaxOrphans {
		oldest := o.queue[0]
		o.queue = o.queue[1:]
		if m := len(oldest.contents); m > 0 {
			res.Dropped += m
			d.partial.Put(oldest.run.slot, true)
			o.forget(oldest)
		}
	}
	p := &parked{run: *r, parent: parent, contents: append([]prefixhash.Content(nil), contents...)}
	p.run.engines = append([]uint64(nil), r.engines...)
	p.run.keys = nil
	k := orphanBlock{r.slot, parent}
	o.waiting[k] = append(o.waiting[k], p)
	for _, hash := range p.run.engines {
		k := orphanBlock{r.slot, hash}
		o.at[k] = append(o.at[k], p)
	}
	o.queue = append(o.queue, p)
	o.blocks += n
	res.Orphaned += n
}

// forget takes a parked run out of all lists but the queue.
func (o *orphans) forget(p *parked) {
	without(o.waiting, orphanBlock{p.run.slot, p.parent}, p)
	o.release(p)
}

// release ends the accounting of a run; the queue skips it later.
func (o *orphans) release(p *parked) {
	for _, hash := range p.run.engines {
		without(o.at, orphanBlock{p.run.slot, hash}, p)
	}
	o.blocks -= len(p.contents)
	p.contents = nil
	if o.blocks == 0 {
		o.queue = nil
	}
}

// without takes p out of one of a map's lists.
func without[K comparable](m map[K][]*parked, k K, p *parked) {
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

// wake moves the runs of a slot that waited for hash to list.
func (o *orphans) wake(slot int, hash uint64, list *[]*parked) {
	k := orphanBlock{slot, hash}
	if waiting := o.waiting[k]; waiting != nil {
		*list = append(*list, waiting...)
		delete(o.waiting, k)
	}
}

// remove notes that a parked block was evicted.
func (o *orphans) remove(slot int, tier Tier, hash uint64) bool {
	list := o.at[orphanBlock{slot, hash}]
	for i := len(list) - 1; i >= 0; i-- {
		p := list[i]
		if p.run.tier != tier || p.removed[hash] {
			continue
		}
		if p.removed == nil {
			p.removed = map[uint64]bool{}
		}
		p.removed[hash] = true
		if len(p.removed) == len(p.run.engines) {
			o.forget(p)
		}
		return true
	}
	return false
}

// join stores the woken runs, and those that waited for them in turn.
func (d *domain) join(res *Result) {
	var evicted []*parked
	for len(d.joined) > 0 {
		p := d.joined[len(d.joined)-1]
		d.joined = d.joined[:len(d.joined)-1]
		contents := p.contents
		d.orphans.release(p)
		if !d.slots.Live.Has(p.run.slot) {
			continue
		}
		at, known := d.spotOf(p.run.sp, p.run.slot, p.parent)
		if !known {
			res.Dropped += len(contents)
			continue
		}
		r := p.run
		r.parent = at
		d.keys = linkAll(d.keys[:0], at.key, contents)
		r.keys = d.keys
		d.store(&r, res)
		r.cancel(d.info[r.slot].holder.id)
		if len(p.removed) > 0 {
			evicted = append(evicted, p)
		}
	}
	for _, p := range evicted { // only now: others were linked through them
		d.dropRemoved(p, res)
	}
}

// dropRemoved takes out the blocks that were evicted while they waited.
func (d *domain) dropRemoved(p *parked, res *Result) {
	var hashes []uint64
	for _, hash := range p.run.engines {
		if p.removed[hash] {
			hashes = append(hashes, hash)
		}
	}
	var again Result
	d.remove(p.run.slot, p.run.tier, hashes, &again)
	res.Stored -= again.Removed
}
