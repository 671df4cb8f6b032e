package index

import (
	"slices"
	"sync/atomic"

	"warmroute/index/internal/cachegroups"
	"warmroute/prefixhash"
)

// arrivals is what prompts that are on their way to members will leave to be hit: a
// cache with several groups does not keep every block of a prompt, but places where
// others can continue (cachegroups.Leaves). The oldest arrivals are overwritten.
//
// Lookups take no lock: an arrival's stamp is 0 while it is written, and its keys
// are whole as long as the ring has not come round.
type arrivals struct {
	until atomic.Int64 // when the last one ends, Unix nanoseconds
	next  atomic.Uint32
	all   [maxArrivals]arrival
	keys  atomic.Pointer[keyRing]
}

// maxArrivals bounds the arrivals of a model: prompts that wait for prefill.
const maxArrivals = 512

type arrival struct {
	stamp  atomic.Uint64 // of this arrival alone; 0: none
	of     atomic.Uint64 // the last key of its prompt
	first  atomic.Uint64 // the first
	at     atomic.Uint64 // where its keys are
	blocks atomic.Int32  // how many they are
	behind atomic.Int32  // blocks behind a place that must be shared to hit it
	holder atomic.Int32
	until  atomic.Int64
	places [cachegroups.MaxPlaces]atomic.Uint64 // packed
}

// keyRing is the keys of the last prompts, one behind the other.
type keyRing struct {
	next atomic.Uint64
	keys [ringKeys]atomic.Uint64
}

// ringKeys is a megabyte. A prompt of more than a quarter of them is not noted.
const ringKeys = 1 << 17

// put writes keys over the oldest, and says where.
func (r *keyRing) put(keys []prefixhash.Key) (at uint64) {
	at = r.next.Add(uint64(len(keys))) - uint64(len(keys))
	for i, k := range keys {
		r.keys[(at+uint64(i))%ringKeys].Store(uint64(k))
	}
	return at
}

// common is how many of the n keys at a place are those of a prompt, from the first on.
func (r *keyRing) common(at uint64, n int, keys []prefixhash.Key) int {
	least, most := 0, min(n, len(keys)) // equal up to least, not behind most
	for least < most {
		i := (least + most + 1) / 2
		if r.keys[(at+uint64(i)-1)%ringKeys].Load() == uint64(keys[i-1]) {
			least = i
		} else {
			most = i - 1
		}
	}
	if r.next.Load()-at > ringKeys {
		return 0
	}
	return least
}

// Places are packed in blocks: from, to and step.
const (
	placeBits = 21
	placeMask = 1<<placeBits - 1
)

func pack(p cachegroups.Places, block int) uint64 {
	return uint64(p.From/block)<<(2*placeBits) | uint64(p.To/block)<<placeBits | uint64(p.Step/block)
}

// placed is the last of packed places up to a block, 0 where there is none.
func placed(p uint64, to int) int {
	from, last, step := int(p>>(2*placeBits)), int(p>>placeBits&placeMask), int(p&placeMask)
	if to = min(to, last); p == 0 || to < from {
		return 0
	}
	return to - (to-from)%step
}

// arrive notes or, with until 0, takes back what a prompt with these keys will
// leave. It reports whether the holder is a member whose hits its groups decide.
func (x *Index) arrive(s *Scope, id HolderID, keys []prefixhash.Key, until int64) bool {
	m := x.memberOf(id, modelKey{s.Tenant, s.Model})
	if m == nil {
		return false
	}
	c := m.class.Load()
	if c == nil || c.geometry.Plain() && c.scope.ahead == 0 {
		return false
	}
	g, now := &m.model.arrivals, x.o.Now().UnixNano()
	switch {
	case until == 0:
		g.remove(id, uint64(keys[len(keys)-1]))
	case until > now && len(keys) <= ringKeys/4:
		var room [cachegroups.MaxPlaces]cachegroups.Places
		coming := x.coming(m, c, s, keys, now)
		g.add(s, id, keys, c.geometry.Leaves(room[:0], c.assumed, coming), c.geometry.Behind(c.assumed), until)
	}
	return true
}

// coming is what a member will have of a prompt when it computes it: by its events,
// and by what it was sent before.
func (x *Index) coming(m *groupMember, c *groupClass, s *Scope, keys []prefixhash.Key, now int64) cachegroups.Coming {
	p := cachegroups.Coming{Tokens: len(keys) * s.BlockSize, Retention: c.retention}
	if c.method.kind != byEnds || c.scope.block != s.BlockSize || c.scope.ahead > 0 { // keys are the same in all groups
		p.Alone = true
		return p
	}
	reader, r := x.enter()
	defer reader.Leave()
	q := &r.group
	q.reset(0)
	q.one[0] = m
	has := q.ends(x, r, c.scope, q.one[:], s, keys, p.Tokens+1)
	hit, full := int(has.ends[0]), int(has.whole[0])
	for before, e := range m.model.arrivals.live(keys, now) {
		if HolderID(e.holder) == m.holder.id {
			hit, full = max(hit, e.hit(before)), max(full, before)
		}
	}
	p.Hit, p.Full = hit*s.BlockSize, full*s.BlockSize
	return p
}

// add notes one.
func (g *arrivals) add(s *Scope, id HolderID, keys []prefixhash.Key, places []cachegroups.Places, behind int, until int64) {
	n := 0
	var packed [cachegroups.MaxPlaces]uint64
	for _, p := range places {
		if p.From%s.BlockSize == 0 && p.Step%s.BlockSize == 0 && p.To/s.BlockSize <= placeMask {
			packed[n] = pack(p, s.BlockSize)
			n++
		}
	}
	ring := g.keys.Load()
	if ring == nil {
		g.keys.CompareAndSwap(nil, new(keyRing))
		ring = g.keys.Load()
	}
	stamp := g.next.Add(1)
	e := &g.all[stamp%maxArrivals]
	e.stamp.Store(0)
	e.of.Store(uint64(keys[len(keys)-1]))
	e.first.Store(uint64(keys[0]))
	e.at.Store(ring.put(keys))
	e.blocks.Store(int32(len(keys)))
	e.behind.Store(int32((behind + s.BlockSize - 1) / s.BlockSize))
	e.holder.Store(int32(id))
	e.until.Store(until)
	for i := range e.places {
		e.places[i].Store(packed[i])
	}
	e.stamp.Store(uint64(stamp) + 1)
	for {
		last := g.until.Load()
		if last >= until || g.until.CompareAndSwap(last, until) {
			return
		}
	}
}

// remove takes what one prompt leaves back: an equal one may still be on its way.
func (g *arrivals) remove(id HolderID, of uint64) {
	for i := range g.all {
		e := &g.all[i]
		if stamp := e.stamp.Load(); stamp != 0 && e.of.Load() == of && e.holder.Load() == int32(id) && e.stamp.CompareAndSwap(stamp, 0) {
			return
		}
	}
}

// sharing is an arrival that shares the beginning of a prompt.
type sharing struct {
	holder int32
	behind int
	places [cachegroups.MaxPlaces]uint64
}

// hit is how many blocks of it a prompt hits that shares so many.
func (e *sharing) hit(blocks int) (hit int) {
	for _, p := range e.places {
		hit = max(hit, placed(p, blocks-e.behind))
	}
	return hit
}

// live yields the arrivals that share the beginning of a prompt, and how many blocks.
func (g *arrivals) live(keys []prefixhash.Key, now int64) func(func(int, *sharing) bool) {
	return func(yield func(int, *sharing) bool) {
		ring := g.keys.Load()
		if ring == nil || len(keys) == 0 || g.until.Load() <= now {
			return
		}
		var s sharing
		for i := range g.all {
			e := &g.all[i]
			stamp := e.stamp.Load()
			if stamp == 0 || e.first.Load() != uint64(keys[0]) || e.until.Load() <= now {
				continue
			}
			s.holder, s.behind = e.holder.Load(), int(e.behind.Load())
			for k := range s.places {
				s.places[k] = e.places[k].Load()
			}
			blocks := ring.common(e.at.Load(), int(e.blocks.Load()), keys)
			if e.stamp.Load() == stamp && blocks > 0 && !yield(blocks, &s) {
				return
			}
		}
	}
}

// lookup raises what matches say is coming, by the arrivals that a prompt shares the
// beginning of.
func (g *arrivals) lookup(x *Index, f *Found, s *Scope, keys []prefixhash.Key) {
	if s.BlockSize <= 0 {
		return
	}
	for blocks, e := range g.live(keys, x.o.Now().UnixNano()) {
		id := HolderID(e.holder)
		if hit := e.hit(blocks); hit > 0 && x.memberOf(id, modelKey{s.Tenant, s.Model}) != nil {
			f.coming(id, int32(hit*s.BlockSize), s.BlockSize)
		}
	}
}

// coming raises a holder's match.
func (f *Found) coming(id HolderID, tokens int32, block int) {
	f.write()
	i := slices.IndexFunc(f.list, func(m Match) bool { return m.ID == id })
	if i < 0 {
		i = len(f.list)
		f.list = append(f.list, Match{ID: id, Grouped: true, Seen: f.x.newestBatch(id)})
	}
	if m := &f.list[i]; m.Grouped && m.Coming < tokens {
		m.Coming = tokens
		m.Blocks = max(m.Blocks, tokens/int32(block))
		m.Lower, m.Storage = max(m.Lower, m.Blocks), max(m.Storage, m.Blocks)
	}
}

// Grouped reports whether a holder's hits do not follow from its blocks of full
// attention alone. Such a holder is left out of snapshots: its groups are not in them.
func (x *Index) Grouped(self Holder) bool {
	h := x.known(self)
	return h != nil && h.grouped()
}

func (h *holder) grouped() bool {
	all := h.seenMembers.Load()
	if all == nil {
		return false
	}
	for _, m := range *all {
		if c := m.alone.Load(); c != nil && (!c.geometry.Plain() || !c.assumed.None()) {
			return true
		}
	}
	return false
}
