package index

import (
	"slices"
	"sync/atomic"

	"warmroute/prefixhash"
)

// arrivals is what prompts that are on their way to members will leave to be
// hit. A cache with several groups does not keep every block of a prompt: what is
// sure to be kept is the prompt's end, rounded down to where hits may be. So an
// arrival is that one key; a prompt that has it at that place will hit so much,
// one that parts before will not. The oldest arrivals are overwritten.
type arrivals struct {
	until atomic.Int64 // when the last one ends, Unix nanoseconds
	next  atomic.Uint32
	all   [maxArrivals]arrival
}

// maxArrivals bounds the arrivals of a model: prompts that wait for prefill.
const maxArrivals = 512

type arrival struct {
	key    atomic.Uint64 // 0: none; written last
	holder atomic.Int32
	tokens atomic.Int32
	until  atomic.Int64
}

// arrive notes or, with until 0, takes back the end of a prompt with these keys. It
// reports whether the holder is a member whose groups decide.
func (x *Index) arrive(s *Scope, id HolderID, keys []prefixhash.Key, until int64) bool {
	m := x.memberOf(id, modelKey{s.Tenant, s.Model})
	if m == nil {
		return false
	}
	c := m.class.Load()
	if c == nil || c.geometry.Plain() {
		return false
	}
	step := c.geometry.Align
	tokens := len(keys) * s.BlockSize / step * step
	if tokens == 0 || tokens%s.BlockSize != 0 {
		return true
	}
	key := uint64(keys[tokens/s.BlockSize-1])
	g := &m.model.arrivals
	if until == 0 {
		for i := range g.all {
			if e := &g.all[i]; e.key.Load() == key && e.holder.Load() == int32(id) {
				e.key.Store(0)
			}
		}
		return true
	}
	e := &g.all[g.next.Add(1)%maxArrivals]
	e.key.Store(0)
	e.holder.Store(int32(id))
	e.tokens.Store(int32(tokens))
	e.until.Store(until)
	e.key.Store(key)
	for {
		last := g.until.Load()
		if last >= until || g.until.CompareAndSwap(last, until) {
			return true
		}
	}
}

// lookup raises what matches say is coming, by the arrivals that a prompt continues.
func (g *arrivals) lookup(x *Index, f *Found, s *Scope, keys []prefixhash.Key) {
	now := x.o.Now().UnixNano()
	if g.until.Load() <= now || s.BlockSize <= 0 {
		return
	}
	for i := range g.all {
		e := &g.all[i]
		key, tokens := e.key.Load(), e.tokens.Load()
		at := int(tokens) / s.BlockSize
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
		f.list = append(f.list, Match{ID: id, Grouped: true, Seen: f.x.seen(id)})
	}
	if m := &f.list[i]; m.Grouped && m.Coming < tokens {
		m.Coming = tokens
		m.Blocks = max(m.Blocks, tokens/int32(block))
		m.Lower, m.Storage = max(m.Lower, m.Blocks), max(m.Storage, m.Blocks)
	}
}

// Grouped reports whether a holder's blocks of full attention alone do not tell what
// it hits. Such a holder is left out of snapshots: its groups are not in them.
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
