package index

import (
	"iter"
	"slices"

	"warmroute/prefixhash"
)

// Entry is one block or one engine hash of a Snapshot.
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
	for _, sp := range d.spaces {
		if sp == nil {
			continue
		}
		for q := range tableParts {
			all = append(all, func() []Entry { return d.collect(sp, q) })
		}
	}
	for q := range tableParts {
		all = append(all, func() []Entry { return d.collectEngines(q) })
	}
	return all
}

// collect gathers the blocks of one array of every table.
func (d *domain) collect(sp *space, q int) (out []Entry) {
	if sp.dropped {
		return nil
	}
	at := map[uint64]int{}
	entry := func(key uint64) *Entry {
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, Entry{Scope: sp.scope, Key: prefixhash.Key(key)})
		}
		return &out[i]
	}
	tables := [...]struct {
		t    *table
		tier Tier
	}{
		{sp.gpu, TierGPU}, {sp.stranded.Load(), TierGPU},
		{sp.lower[TierCPU].Load(), TierCPU}, {sp.lower[TierStorage].Load(), TierStorage},
	}
	for _, from := range tables {
		if from.t == nil {
			continue
		}
		p := from.t.parts[q].Load()
		for i := range p.n {
			s := p.at(i)
			if s.key == 0 || s.val&valSet == 0 && (from.t != sp.gpu || !sp.needed(s)) {
				continue
			}
			e := entry(s.key)
			d.sets.each(setID(s.val&valSet), func(seat int) {
				if d.seating.live.has(seat) {
					extra := d.copies[copyKey{int32(sp.index), int32(seat), from.tier, s.key}]
					e.Copies = append(e.Copies, Copy{d.info[seat].holder.self, from.tier, int(extra)})
				}
			})
			if from.t == sp.gpu {
				e.First = s.val&valFirst != 0
				sp.children(s, func(key uint64) bool {
					if sp.alive(key) && !slices.Contains(e.Children, prefixhash.Key(key)) {
						e.Children = append(e.Children, prefixhash.Key(key))
					}
					return true
				})
			}
		}
	}
	return slices.DeleteFunc(out, func(e Entry) bool { return len(e.Copies)+len(e.Children) == 0 })
}

func (d *domain) collectEngines(q int) (out []Entry) {
	d.engines.each(q, func(at engineAt) {
		e := Entry{Scope: d.spaces[at.space()].scope, Key: prefixhash.Key(at.key()), HasEngine: true, Engine: at.hash()}
		d.sets.each(at.set(), func(seat int) {
			if d.seating.live.has(seat) {
				e.Copies = append(e.Copies, Copy{Holder: d.info[seat].holder.self})
			}
		})
		if len(e.Copies) > 0 {
			out = append(out, e)
		}
	})
	return out
}

// Restore takes the entries of a Snapshot, of another index perhaps, as if
// their holders had reported them. Holders that have not begun do; those that
// report here already are left as they are. Entries are kept until all are
// there, and blocks whose place in a prompt is not among them are dropped. A
// reporter that goes on where the snapshot ended asks Resume, not Begin.
func (x *Index) Restore(entries iter.Seq[Entry]) (res Result) {
	r := restorer{x: x, res: &res, holders: map[Holder]*holder{}, blocks: map[scopedKey]*Entry{}, engines: map[scopedKey][]Entry{}}
	var first []scopedKey
	for e := range entries {
		k := scopedKey{e.Scope, e.Key}
		if e.HasEngine {
			r.engines[k] = append(r.engines[k], e)
			continue
		}
		r.blocks[k] = &e
		if e.First {
			first = append(first, k)
		}
	}
	for _, k := range first {
		r.take(k, 0)
	}
	for len(r.ready) > 0 || r.unplaced() {
		next := r.ready[len(r.ready)-1]
		r.ready = r.ready[:len(r.ready)-1]
		r.take(next.scopedKey, next.parent)
	}
	for k, e := range r.blocks { // copies beside the GPU need no place in a prompt
		for _, c := range e.Copies {
			if c.Tier == TierGPU {
				res.Dropped++
				continue
			}
			r.copies(k, 0, c)
		}
	}
	return res
}

// Resume returns the incarnation of a holder that has begun, for a reporter
// that goes on where a restored state ended instead of beginning anew.
func (x *Index) Resume(self Holder) (incarnation uint64, ok bool) {
	h := x.known(self)
	if h == nil {
		return 0, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.incarnation, h.incarnation != 0
}

type scopedKey struct {
	scope Scope
	key   prefixhash.Key
}

type restorer struct {
	x       *Index
	res     *Result
	holders map[Holder]*holder // nil: reports here already
	blocks  map[scopedKey]*Entry
	engines map[scopedKey][]Entry
	ready   []placed
}

// placed is a block whose parent has been taken.
type placed struct {
	scopedKey
	parent uint64
}

// unplaced makes the children of holes ready: blocks whose parent is known by
// name, but by nobody else's child.
func (r *restorer) unplaced() bool {
	child := map[scopedKey]bool{}
	for k, e := range r.blocks {
		for _, c := range e.Children {
			child[scopedKey{k.scope, c}] = true
		}
	}
	for k, e := range r.blocks {
		onGPU := slices.ContainsFunc(e.Copies, func(c Copy) bool { return c.Tier == TierGPU })
		if !onGPU && len(e.Children) > 0 && !child[k] { // a hole at the start of what is known
			r.take(k, 0)
		}
	}
	return len(r.ready) > 0
}

func (r *restorer) push(k scopedKey, e *Entry) {
	for _, c := range e.Children {
		r.ready = append(r.ready, placed{scopedKey{k.scope, c}, uint64(k.key)})
	}
}

// take stores a block behind its parent (0: it is a first one) for all that
// have it, and makes its children ready.
func (r *restorer) take(k scopedKey, parent uint64) {
	e := r.blocks[k]
	if e == nil {
		return
	}
	delete(r.blocks, k)
	for _, c := range e.Copies {
		r.copies(k, parent, c)
	}
	r.push(k, e)
}

func (r *restorer) copies(k scopedKey, parent uint64, c Copy) {
	h := r.holder(c.Holder)
	if h == nil || c.Tier >= tiers {
		return
	}
	for range 1 + c.Extra {
		r.store(h, k, parent, c)
	}
}

// holder is the holder to restore copies of, nil when it is not to be touched.
func (r *restorer) holder(self Holder) *holder {
	h, ok := r.holders[self]
	if !ok {
		if _, begun := r.x.Resume(self); !begun {
			r.x.Begin(self)
			h = r.x.intern(self)
		}
		r.holders[self] = h
	}
	return h
}

func (r *restorer) store(h *holder, k scopedKey, parent uint64, c Copy) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sawGroup(k.scope, GroupUnknown)
	sp := r.x.lockSpace(k.scope)
	if sp == nil {
		r.res.Dropped++
		return
	}
	d := sp.d
	defer d.mu.Unlock()
	seat, ok := d.seatFor(h)
	if !ok {
		r.res.Dropped++
		return
	}
	one := run{sp: sp, seat: seat, tier: c.Tier, keys: []uint64{keyOf(uint64(k.key))}, hasParent: parent != 0, parent: parent}
	for _, e := range r.engines[k] {
		if slices.ContainsFunc(e.Copies, func(o Copy) bool { return o.Holder == c.Holder }) {
			one.engines = []uint64{e.Engine}
		}
	}
	sp.plain = sp.plain || one.engines == nil
	before := sp.blocks()
	d.store(&one, r.res)
	r.x.blocks.Add(int64(sp.blocks() - before))
}
