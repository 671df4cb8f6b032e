package hybrid

import (
	"sync/atomic"

	"warmroute/prefixhash"
)

// arrivals are the prompts in flight to a model's members, with the places at which other
// prompts will hit them: a cache with several groups keeps only some blocks of a prompt
// (Layout.Leaves). The newest arrival overwrites the oldest.
//
// Lookups take no lock: an arrival's stamp is 0 while a writer changes it, and its keys are
// valid until the ring overwrites them.
type arrivals struct {
	until atomic.Int64 // Unix nanoseconds at which the last one ends
	next  atomic.Uint32
	all   [maxArrivals]arrival
	keys  atomic.Pointer[keyRing]
}

// maxArrivals bounds the arrivals of a model: prompts that wait for prefill.
const maxArrivals = 512

type arrival struct {
	stamp  atomic.Uint64 // of this arrival alone; 0: none
	of     atomic.Uint64 // the last key of its prompt
	first  atomic.Uint64 // the first key
	at     atomic.Uint64 // where its keys are in the ring
	blocks atomic.Int32  // the number of its keys
	behind atomic.Int32  // blocks that a prompt must share behind a place to hit it
	member atomic.Int32  // by its ID
	until  atomic.Int64
	places [MaxPlaces]atomic.Uint64 // packed
}

// keyRing has the keys of the last prompts, one prompt behind the other.
type keyRing struct {
	next atomic.Uint64
	keys [ringKeys]atomic.Uint64
}

// ringKeys is the length of a ring: a megabyte. An arrival has at most a quarter of the keys.
const ringKeys = 1 << 17

// put writes keys over the oldest ones, and returns their place.
func (r *keyRing) put(keys []prefixhash.Key) (at uint64) {
	at = r.next.Add(uint64(len(keys))) - uint64(len(keys))
	for i, k := range keys {
		r.keys[(at+uint64(i))%ringKeys].Store(uint64(k))
	}
	return at
}

// common returns how many of the n keys at a place equal a prompt's, from the first on.
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

func pack(p Places, block int) uint64 {
	return uint64(p.From/block)<<(2*placeBits) | uint64(p.To/block)<<placeBits | uint64(p.Step/block)
}

// placed returns the last of some packed places up to a block, or 0.
func placed(p uint64, to int) int {
	from, last, step := int(p>>(2*placeBits)), int(p>>placeBits&placeMask), int(p&placeMask)
	if to = min(to, last); p == 0 || to < from {
		return 0
	}
	return to - (to-from)%step
}

// Arrival is a prompt that is sent to a member, by the keys of its blocks.
type Arrival struct {
	Asked Home
	Keys  []prefixhash.Key
	Until int64 // Unix nanoseconds
	Now   int64
}

// Foreseen reports whether arrivals predict the member's hits of prompts in flight.
func (m *Member) Foreseen() bool {
	p := m.joined.Load()
	return p != nil && (!p.layout.Plain() || p.home.Ahead > 0)
}

// Arrive records a prompt that is sent to the member.
func (l *Lookup) Arrive(m *Member, a Arrival, index Index) {
	p := m.joined.Load()
	if p == nil || a.Until <= a.Now || len(a.Keys) > ringKeys/4 || a.Asked.Block <= 0 {
		return
	}
	var room [MaxPlaces]Places
	places := p.layout.Leaves(room[:0], p.assumed, l.inFlight(m, p, &a, index))
	behind := p.layout.Behind(p.assumed)
	if p.layout.Rule == RuleSGLang { // a page is hit with the tokens behind it alone
		behind += p.home.Ahead
	}
	m.model.arrivals.add(m.ID, &a, places, behind)
}

// Withdraw takes back a prompt that was sent to the member.
func (m *Member) Withdraw(keys []prefixhash.Key) {
	m.model.arrivals.remove(m.ID, uint64(keys[len(keys)-1]))
}

// inFlight describes the prompt when the member computes it: its blocks there, by
// its events and by earlier arrivals.
func (l *Lookup) inFlight(m *Member, p *Plan, a *Arrival, index Index) InFlight {
	block := a.Asked.Block
	f := InFlight{Tokens: len(a.Keys) * block, Retention: p.retention}
	if p.method.by != byEnds || p.home.Block != block || p.home.Ahead > 0 { // the keys are of other blocks
		f.Alone = true
		return f
	}
	l.one[0] = m
	l.own = Query{Tokens: f.Tokens, Asked: a.Asked, Keys: a.Keys}
	l.begin(&l.own, index, l.one[:])
	d := l.probe(p.home, f.Tokens+1)
	hit, full := int(d.hit[0]), int(d.held[0])
	l.end()
	l.own = Query{}
	for shared, e := range m.model.arrivals.live(a.Keys, a.Now) {
		if e.member == m.ID {
			hit, full = max(hit, e.hit(shared)), max(full, shared)
		}
	}
	f.Hit, f.Full = hit*block, full*block
	return f
}

// add writes an arrival over the oldest one.
func (g *arrivals) add(member int32, a *Arrival, places []Places, behind int) {
	n, block := 0, a.Asked.Block
	var packed [MaxPlaces]uint64
	for _, p := range places {
		if p.From%block == 0 && p.Step%block == 0 && p.To/block <= placeMask {
			packed[n] = pack(p, block)
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
	e.of.Store(uint64(a.Keys[len(a.Keys)-1]))
	e.first.Store(uint64(a.Keys[0]))
	e.at.Store(ring.put(a.Keys))
	e.blocks.Store(int32(len(a.Keys)))
	e.behind.Store(int32((behind + block - 1) / block))
	e.member.Store(member)
	e.until.Store(a.Until)
	for i := range e.places {
		e.places[i].Store(packed[i])
	}
	e.stamp.Store(uint64(stamp) + 1)
	for {
		last := g.until.Load()
		if last >= a.Until || g.until.CompareAndSwap(last, a.Until) {
			return
		}
	}
}

// remove removes one arrival of a member's prompt; an equal one may still be in flight.
func (g *arrivals) remove(member int32, of uint64) {
	for i := range g.all {
		e := &g.all[i]
		if stamp := e.stamp.Load(); stamp != 0 && e.of.Load() == of && e.member.Load() == member && e.stamp.CompareAndSwap(stamp, 0) {
			return
		}
	}
}

// drop removes all arrivals of a member.
func (g *arrivals) drop(member int32) {
	for i := range g.all {
		e := &g.all[i]
		if stamp := e.stamp.Load(); stamp != 0 && e.member.Load() == member {
			e.stamp.CompareAndSwap(stamp, 0)
		}
	}
}

// sharing is an arrival that shares the beginning of a prompt.
type sharing struct {
	member int32
	behind int
	places [MaxPlaces]uint64
}

// hit returns how many blocks of the arrival a prompt hits if it shares the first ones.
func (e *sharing) hit(blocks int) (hit int) {
	for _, p := range e.places {
		hit = max(hit, placed(p, blocks-e.behind))
	}
	return hit
}

// live yields the arrivals that begin as the prompt does, and how many blocks they share
// with it.
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
			s.member, s.behind = e.member.Load(), int(e.behind.Load())
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

// HasArrivals reports whether a prompt has ever been in flight.
func (g *Model) HasArrivals() bool { return g.arrivals.keys.Load() != nil }

// Coming yields the members, by ID, that have a prompt with the same beginning in flight,
// and how many blocks of it the prompt will hit.
func (g *Model) Coming(keys []prefixhash.Key, now int64) func(func(member int32, blocks int) bool) {
	return func(yield func(int32, int) bool) {
		for blocks, e := range g.arrivals.live(keys, now) {
			if hit := e.hit(blocks); hit > 0 && !yield(e.member, hit) {
				return
			}
		}
	}
}
