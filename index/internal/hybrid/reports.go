package hybrid

import (
	"slices"

	"warmroute/prefixhash"
)

// With kv_cache_report_mode full, vLLM announces the blocks that a request hits again,
// although it stores nothing. Such a report begins at a prompt's start, lists every block
// in every group, and was a hit before it. An ordinary prompt is stored from its start only
// if it hits nothing, so events that repeat a hit are a report. One case remains: a prompt
// never hits its last token, so a prompt that ends with the events may have computed the
// last block again. The events are then a copy as long as the holder has not been seen to
// report, and may be either from then on. A request that reads no cache (prompt_logprobs)
// looks like a report. Blocks of such copies do not count; reports.maybe has the blocks
// that may remain.

// reports records whether a member reports, and the blocks in doubt.
type reports struct {
	seen bool // it has reported
	told bool // the settings say that it does

	open  map[groupHash]uint32 // copies that may be reports: counted until the member is seen to report
	maybe map[groupHash]bool   // the blocks of open that may remain without a counted copy
	lost  bool                 // there were more than maxOpen
}

// maxOpen bounds the open copies.
const maxOpen = 1 << 14

// forget drops the blocks in doubt.
func (r *reports) forget() { *r = reports{seen: r.seen, told: r.told} }

// doubt reports whether the member may hold blocks that do not count.
func (r *reports) doubt() bool { return r.seen && (r.lost || len(r.maybe) > 0) }

// concerns reports whether a prompt, by its keys on the plan's chain, has a block that may
// remain. A block without a key may be in any prompt.
func (m *Member) concerns(p *Plan, keys []prefixhash.Key) bool {
	if m.reports.lost || m.plain {
		return m.reports.doubt()
	}
	for b := range m.reports.maybe {
		key, known := b.hash, true
		if p.keying.Hash == nil {
			key, known = m.held.keys[b.hash]
		}
		if !known || slices.Contains(keys, prefixhash.Key(key)) {
			return true
		}
	}
	return false
}

// verdict says whether events from a prompt's start are a report.
type verdict uint8

const (
	isStored verdict = iota
	isReport
	isEither
)

// classify judges events that list all blocks of so many tokens in all groups.
func (m *Member) classify(p *Plan, tokens int, b Prober) verdict {
	if p.layout.Hit(tokens+1, Assumed{}, b) < tokens {
		return isStored
	}
	told := m.told()
	if p.layout.Hit(tokens, told.least(p.layout), b) > 0 {
		return isReport
	}
	return isEither
}

// leaveOut records a verdict, and reports whether the events change nothing.
func (m *Member) leaveOut(v verdict, events []Event) bool {
	r := &m.reports
	switch {
	case v == isStored:
		return false
	case v == isReport && !r.seen:
		m.reporting()
	case v == isReport && r.told:
		return true
	}
	for i := range events {
		for _, hash := range events[i].Hashes {
			if len(r.open) >= maxOpen {
				r.lost = true
				break
			}
			if r.open == nil {
				r.open, r.maybe = map[groupHash]uint32{}, map[groupHash]bool{}
			}
			r.open[groupHash{events[i].Group, hash}]++
		}
	}
	return r.seen
}

// reporting records that the member reports, and takes back the copies that were counted
// for events that may have been reports.
func (m *Member) reporting() {
	m.reports.seen = true
	for b, n := range m.reports.open {
		for range n {
			m.host.Remove(b.group, b.hash)
			m.Removed(b.group, []uint64{b.hash})
		}
		if !m.has(b) {
			m.reports.maybe[b] = true
		}
	}
	m.updateTrust()
}

// Review updates the open copies of the blocks that a Removed event of a group names.
func (m *Member) Review(group int, hashes []uint64) {
	if len(m.reports.open) == 0 {
		return
	}
	was := len(m.reports.maybe)
	for _, hash := range hashes {
		m.review(groupHash{group, hash})
	}
	if was != len(m.reports.maybe) {
		m.updateTrust()
	}
}

func (m *Member) review(b groupHash) {
	r := &m.reports
	n := r.open[b]
	switch {
	case n == 0 || m.has(b):
	case r.seen && !r.maybe[b]: // the event has removed the last counted copy
		r.maybe[b] = true
	case r.seen && n > 1: // it has removed an open copy
		r.open[b] = n - 1
	default:
		delete(r.open, b)
		delete(r.maybe, b)
	}
}

// has reports whether a counted copy remains.
func (m *Member) has(b groupHash) bool {
	if m.plain {
		return m.OnGPU(b.group, b.hash)
	}
	return m.held.has(b)
}

// again records that the blocks of an event remain for certain.
func (m *Member) again(e *Event) {
	if len(m.reports.maybe) == 0 {
		return
	}
	for _, hash := range e.Hashes {
		delete(m.reports.maybe, groupHash{e.Group, hash})
	}
	m.updateTrust()
}

// Repeats returns how many of the events, from the first on, only repeat a request's hit.
// They change nothing.
func (m *Member) Repeats(events []Event) int {
	if m.plain {
		return m.repeatsPlain(&events[0], events[:1])
	}
	p := m.joined.Load()
	if p == nil || !p.layout.Known {
		return 0
	}
	events, groups := opening(events)
	for i := range p.layout.Specs {
		if mask := p.layout.Specs[i].Mask; groups&mask != mask {
			return 0
		}
	}
	b := hashProber{m: m, plan: p}
	for i := range events { // the finest blocks show all ends
		if e := &events[i]; b.unit == 0 || e.Block < b.unit {
			b.unit, b.hashes = e.Block, append(m.ends[:0], e.Hashes...)
			m.ends = b.hashes
		}
	}
	if m.leaveOut(m.classify(p, events[0].Tokens, &b), events) {
		return len(events)
	}
	return 0
}

// opening returns the first events that list all blocks of one prompt's beginning, each in
// another group, and these groups, as bits.
func opening(events []Event) (first []Event, groups uint32) {
	last := -1
	for i := range events {
		e := &events[i]
		if !e.valid() || e.HasParent || e.Tokens != events[0].Tokens || e.Group <= last || e.Tokens == 0 || len(e.Hashes)*e.Block != e.Tokens {
			return events[:i], groups
		}
		last = e.Group
		groups |= 1 << e.Group
	}
	return events, groups
}

// repeatsPlain is Repeats for a cache of full attention alone, whose blocks are in the
// nodes: 1 if the event changes nothing.
func (m *Member) repeatsPlain(e *Event, events []Event) int {
	p := m.plan.Load()
	if p == nil || !m.observed.kinds || e.HasParent || len(e.Hashes) == 0 || e.Contents == nil {
		return 0
	}
	b := depthProber(m.host.Leading(e.Group, e.Hashes))
	if m.leaveOut(m.classify(p, len(e.Hashes)*e.Block, b), events) {
		return 1
	}
	return 0
}

// depthProber probes a cache of full attention alone, by its depth in blocks.
type depthProber int

// Run implements Prober.
func (p depthProber) Run(int, int) (held bool, from int) { return false, 0 }

// Depth implements Prober.
func (p depthProber) Depth(_, limit int) int { return min(limit, int(p)) }

// hashProber probes a member's blocks by the hashes of a prompt's finest blocks.
type hashProber struct {
	m      *Member
	plan   *Plan
	unit   int
	hashes []uint64
}

// Run implements Prober.
func (b *hashProber) Run(spec, end int) (held bool, from int) {
	if at := end / b.unit; end%b.unit == 0 && at >= 1 && at <= len(b.hashes) {
		mask := b.plan.layout.Specs[spec].Mask
		held = b.m.held.groups[b.hashes[at-1]]&mask == mask
	}
	return held, end - 1
}

// Depth implements Prober.
func (b *hashProber) Depth(spec, limit int) int {
	return depthOf(b, spec, b.plan.layout.Specs[spec].Block, limit)
}
