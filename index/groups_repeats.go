package index

import (
	"slices"

	"warmroute/index/internal/cachegroups"
	"warmroute/prefixhash"
)

// With kv_cache_report_mode full a request has the blocks that it hits announced
// again, though nothing is stored. Such a report begins at a prompt's start, lists
// every block in every group, and was a hit before it. An ordinary prompt is stored
// from its start only where it hits nothing, so what repeats a hit is a report. One
// case remains: a prompt never hits its last token, so one that ends with the run
// may have had to compute it again. Then it is a copy, as long as the holder has
// not been seen to report; from then on it may be either. Nor does a request that
// reads no cache (prompt_logprobs) look different from a report, unless it is
// known that there are reports. Such copies are not counted; those that may be left
// are kept apart.

// reports is what is known of a member's reports.
type reports struct {
	seen  bool // it has reported
	shown bool // that it does

	open  map[groupCopy]uint32 // copies that may be none: counted until it is seen to report, not from then on
	maybe map[groupCopy]bool   // those of open that may be held though no counted copy is left
	lost  bool                 // there were more than are kept
}

// maxOpen bounds the copies that are kept.
const maxOpen = 1 << 14

// forget drops what is kept of blocks.
func (r *reports) forget() { *r = reports{seen: r.seen, shown: r.shown} }

// doubt states why less than is held may be counted.
func (r *reports) doubt() bool {
	return r.seen && (r.lost || len(r.maybe) > 0)
}

// concerns reports whether a block that may be held is among a prompt's. keys are the
// prompt's on the class's chain. Where no names are kept, it may always be.
func (m *groupMember) concerns(c *groupClass, keys []prefixhash.Key) bool {
	h := m.holder
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.reports.lost || m.held == nil {
		return m.reports.doubt()
	}
	for one := range m.reports.maybe {
		key, known := one.hash, true
		if c.chain.Hash == nil {
			key, known = m.names[one.hash]
		}
		if !known || slices.Contains(keys, prefixhash.Key(key)) {
			return true
		}
	}
	return false
}

// verdict is what a run from a prompt's start is.
type verdict uint8

const (
	runStored   verdict = iota
	runRepeated         // it changes nothing
	runEither           // a copy or a report
)

// classify states what a run is that lists all blocks of so many tokens in all groups.
func (m *groupMember) classify(c *groupClass, tokens int, p cachegroups.Prober) verdict {
	if c.geometry.Hit(tokens+1, cachegroups.Assumed{Chunk: c.assumed.Chunk}, p) < tokens {
		return runStored
	}
	if c.geometry.Hit(tokens, m.guesses.Least(), p) > 0 {
		return runRepeated
	}
	return runEither
}

// reported notes a verdict, and reports whether the run is left out.
func (m *groupMember) reported(v verdict, run []Event) bool {
	r := &m.reports
	switch {
	case v == runStored:
		return false
	case v == runRepeated && !r.seen:
		m.reporting()
	case v == runRepeated && r.shown:
		return true
	}
	for i := range run {
		for _, hash := range run[i].Engine {
			if len(r.open) >= maxOpen {
				r.lost = true
				break
			}
			if r.open == nil {
				r.open, r.maybe = map[groupCopy]uint32{}, map[groupCopy]bool{}
			}
			r.open[groupCopy{run[i].Scope.Group, hash}]++
		}
	}
	return r.seen
}

// reporting records that the holder reports, and takes back the copies that were
// counted for runs that may have been reports.
func (m *groupMember) reporting() {
	m.reports.seen = true
	for c, n := range m.reports.open {
		for range n {
			gone := Event{Kind: Removed, Tier: TierGPU, Scope: Scope{Group: c.group}, Engine: []uint64{c.hash}}
			m.removed(&gone)
			m.holder.x.removed(m.holder, &gone, &m.holder.result)
		}
		if !m.holds(c) {
			m.reports.maybe[c] = true
		}
	}
	m.updateTrust(m.alone.Load())
}

// review takes from removals what became of the open copies. h.mu is held.
func (h *holder) review(ev *Event) {
	for _, m := range h.members {
		if len(m.reports.open) == 0 || ev.Tier != TierGPU {
			continue
		}
		was := len(m.reports.maybe)
		for _, hash := range ev.Engine {
			m.review(groupCopy{ev.Scope.Group, hash})
		}
		if was != len(m.reports.maybe) {
			m.updateTrust(m.alone.Load())
		}
	}
}

func (m *groupMember) review(c groupCopy) {
	r := &m.reports
	n := r.open[c]
	switch {
	case n == 0 || m.holds(c):
	case r.seen && !r.maybe[c]: // the last counted copy
		r.maybe[c] = true
	case r.seen && n > 1: // an open one
		r.open[c] = n - 1
	default:
		delete(r.open, c)
		delete(r.maybe, c)
	}
}

// holds reports whether a counted copy is left.
func (m *groupMember) holds(c groupCopy) bool {
	if !m.plain && m.held != nil {
		return m.held[c.hash]>>c.group&1 != 0
	}
	for _, sh := range m.holder.shards {
		if sh.key.group != c.group {
			continue
		}
		sh.mu.Lock()
		slot, ok := sh.slots.Of(int32(m.holder.id))
		held := false
		if ok {
			_, held = sh.info[slot].detached[c.hash]
			held = held || sh.info[slot].gpu.Find(c.hash) != 0
		}
		sh.mu.Unlock()
		if held {
			return true
		}
	}
	return false
}

// again records that blocks are held for sure.
func (m *groupMember) again(group int, hashes []uint64) {
	r := &m.reports
	if len(r.maybe) == 0 {
		return
	}
	for _, hash := range hashes {
		delete(r.maybe, groupCopy{group, hash})
	}
	m.updateTrust(m.alone.Load())
}

// repeats states how many of the events, from the first on, only repeat what a
// request has hit.
func (m *groupMember) repeats(events []Event) int {
	c := m.class.Load()
	if c == nil || c.geometry.Rule == cachegroups.Rule021 || !c.geometry.Known {
		return 0
	}
	first := &events[0]
	n, last, groups, unit := 0, -1, uint32(0), 0
	for i := range events {
		e := &events[i]
		if e.Kind != Stored || e.Tier != TierGPU || e.HasParent || e.Tokens != first.Tokens || e.Scope.Group <= last || e.Scope.Group >= cachegroups.MaxGroups ||
			e.Scope.BlockSize <= 0 || e.Tokens == 0 || len(e.Engine)*e.Scope.BlockSize != e.Tokens {
			break
		}
		n, last = n+1, e.Scope.Group
		groups |= 1 << e.Scope.Group
		if unit == 0 || e.Scope.BlockSize < unit {
			unit = e.Scope.BlockSize
		}
	}
	for i := range c.geometry.Specs {
		if mask := c.geometry.Specs[i].Mask; groups&mask != mask {
			return 0
		}
	}
	p := runProber{m: m, c: c, unit: unit, ends: m.ends[:0]}
	for i := range n {
		if e := &events[i]; e.Scope.BlockSize == unit {
			p.ends = append(p.ends[:0], e.Engine...)
			break
		}
	}
	m.ends = p.ends
	if m.reported(m.classify(c, first.Tokens, &p), events[:n]) {
		return n
	}
	return 0
}

// repeatsPlain is repeats for a cache of full attention alone, whose blocks are in
// the nodes: 1 when the event changes nothing.
func (m *groupMember) repeatsPlain(events []Event) int {
	ev := &events[0]
	c := m.alone.Load()
	if c == nil || !m.kinds || ev.HasParent || len(ev.Engine) == 0 || c.geometry.Rule == cachegroups.Rule021 || ev.Content == nil {
		return 0
	}
	if m.reported(m.classifyPlain(c, ev), events[:1]) {
		return 1
	}
	return 0
}

func (m *groupMember) classifyPlain(c *groupClass, ev *Event) verdict {
	ks := (*m.holder.x.keyspaces.Load())[ev.Scope]
	if ks == nil {
		return runStored
	}
	ks.sh.mu.Lock()
	defer ks.sh.mu.Unlock()
	slot, ok := ks.sh.slots.Of(int32(m.holder.id))
	if !ok || ks.dropped {
		return runStored
	}
	return m.classify(c, len(ev.Engine)*ev.Scope.BlockSize, &nodeProber{sh: ks.sh, slot: slot, names: ev.Engine})
}

// nodeProber probes the first blocks of a prompt by the engine's hashes.
type nodeProber struct {
	sh    *shard
	slot  int
	names []uint64
}

func (p *nodeProber) Held(int, int) bool { return false }

func (p *nodeProber) Run(_, limit int) int {
	for k := range min(limit, len(p.names)) {
		if p.sh.info[p.slot].gpu.Find(p.names[k]) == 0 {
			return k
		}
	}
	return min(limit, len(p.names))
}

// runProber probes blocks by the engine's hashes.
type runProber struct {
	m    *groupMember
	c    *groupClass
	unit int
	ends []uint64
}

func (p *runProber) Held(spec, end int) bool {
	at := end / p.unit
	if end%p.unit != 0 || at < 1 || at > len(p.ends) {
		return false
	}
	mask := p.c.geometry.Specs[spec].Mask
	return p.m.held[p.ends[at-1]]&mask == mask
}

func (p *runProber) Run(spec, limit int) int {
	b := p.c.geometry.Specs[spec].Block
	for k := range limit {
		if !p.Held(spec, (k+1)*b) {
			return k
		}
	}
	return limit
}
