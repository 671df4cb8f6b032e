package index

import (
	"slices"
	"sync/atomic"

	"warmroute/index/internal/cachegroups"
	"warmroute/prefixhash"
)

// arrivals is what prompts that are on their way to members will leave to be
// hit. A cache with several groups does not keep every block of a prompt. What is
// sure to be kept is the prompt's end, rounded down to where hits may be, less what
// a draft model drops; and where only windows decide, since 0.32, the place up to
// which full attention had the prompt when it came: vLLM keeps that for the next
// prompt that parts there. So an arrival is a key and what a prompt will hit that
// has it; one that parts before will not. The oldest arrivals are overwritten.
type arrivals struct {
	until atomic.Int64 // when the last one ends, Unix nanoseconds
	next  atomic.Uint32
	all   [maxArrivals]arrival
}

// maxArrivals bounds the arrivals of a model: prompts that wait for prefill.
const maxArrivals = 512

type arrival struct {
	key    atomic.Uint64 // 0: none; written last
	of     atomic.Uint64 // the last key of its prompt
	holder atomic.Int32
	blocks atomic.Int32 // up to the key
	tokens atomic.Int32 // that are hit
	until  atomic.Int64
}

// arrive notes or, with until 0, takes back what a prompt with these keys will
// leave. It reports whether the holder is a member whose hits its groups decide.
func (x *Index) arrive(s *Scope, id HolderID, keys []prefixhash.Key, until int64) bool {
	m := x.memberOf(id, modelKey{s.Tenant, s.Model})
	if m == nil {
		return false
	}
	c := m.class.Load()
	if c == nil || c.geometry.Plain() {
		return false
	}
	g, of := &m.model.arrivals, uint64(keys[len(keys)-1])
	if until == 0 {
		g.remove(id, of)
		return true
	}
	end, hit := c.leaves(len(keys) * s.BlockSize)
	g.add(s, id, keys, end, hit, until)
	if fork := x.fork(m, c, s, keys); fork < end && fork > c.assumed.Replay {
		g.add(s, id, keys, fork, fork, until)
	}
	return true
}

// leaves is what a prompt leaves of which so many tokens can be hit: whoever has it
// up to end hits so much.
func (c *groupClass) leaves(tokens int) (end, hit int) {
	g := c.geometry
	end = tokens - tokens%g.Align
	hit = end
	if drops := g.Drops(c.assumed.Eagle); !g.Known || drops != 0 && !c.keeps(drops) {
		hit = max(0, hit-g.Align)
	}
	if hit <= c.assumed.Replay {
		hit = 0
	}
	return end, hit
}

// fork is up to where full attention has a prompt that comes, where vLLM keeps what
// windows need there; else 0.
func (x *Index) fork(m *groupMember, c *groupClass, s *Scope, keys []prefixhash.Key) int {
	g := c.geometry
	if c.method.kind != byEnds || c.assumed.Eagle != 0 || g.Rule != cachegroups.Rule032 || c.scope != (groupScope{s.Group, s.BlockSize}) {
		return 0
	}
	for i := range g.Specs[1:] {
		if g.Specs[i+1].Kind != cachegroups.Window {
			return 0
		}
	}
	reader, r := x.enter()
	defer reader.Leave()
	q := &r.group
	q.reset(0)
	q.one[0] = m
	held := int(q.ends(x, r, c.scope, q.one[:], s, keys, -1).ends[0]) * s.BlockSize
	return held - held%g.Align
}

// add notes one.
func (g *arrivals) add(s *Scope, id HolderID, keys []prefixhash.Key, end, hit int, until int64) {
	if hit == 0 || end%s.BlockSize != 0 {
		return
	}
	e := &g.all[g.next.Add(1)%maxArrivals]
	e.key.Store(0)
	e.of.Store(uint64(keys[len(keys)-1]))
	e.holder.Store(int32(id))
	e.blocks.Store(int32(end / s.BlockSize))
	e.tokens.Store(int32(hit))
	e.until.Store(until)
	e.key.Store(uint64(keys[end/s.BlockSize-1]))
	for {
		last := g.until.Load()
		if last >= until || g.until.CompareAndSwap(last, until) {
			return
		}
	}
}

// remove takes what one prompt leaves back: an equal one may still be on its way.
func (g *arrivals) remove(id HolderID, of uint64) {
	var gone [2]uint64
	n := 0
	for i := range g.all {
		e := &g.all[i]
		if key := e.key.Load(); n < len(gone) && key != 0 && key != gone[0] && e.of.Load() == of && e.holder.Load() == int32(id) {
			e.key.Store(0)
			gone[n] = key
			n++
		}
	}
}

// lookup raises Coming of matches, by the arrivals that a prompt continues.
func (g *arrivals) lookup(x *Index, f *Found, s *Scope, keys []prefixhash.Key) {
	now := x.o.Now().UnixNano()
	if g.until.Load() <= now || s.BlockSize <= 0 {
		return
	}
	for i := range g.all {
		e := &g.all[i]
		key, at, tokens := e.key.Load(), int(e.blocks.Load()), e.tokens.Load()
		if key == 0 || at < 1 || at > len(keys) || uint64(keys[at-1]) != key || e.until.Load() <= now {
			continue
		}
		id := HolderID(e.holder.Load())
		if e.key.Load() == key && x.memberOf(id, modelKey{s.Tenant, s.Model}) != nil {
			f.coming(id, tokens, s.BlockSize)
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
