package index

import (
	"fmt"
	"slices"
	"strings"

	"warmroute/index/internal/cachegroups"
	"warmroute/prefixhash"
)

// learnGroups takes from a batch what cache groups there are, before any of its
// events is applied: all groups of one step of the engine are in one batch, and
// full attention is often the last of them. h.mu is held.
func (h *holder) learnGroups(b *Batch) {
	var m *groupMember
	var changed bool
	for i := range b.Events {
		ev := &b.Events[i]
		if ev.Kind != Stored || ev.Tier != TierGPU {
			continue
		}
		if m == nil || m.key.model != ev.Scope.Model || m.key.tenant != ev.Scope.Tenant {
			if changed {
				m.shape()
			}
			m, changed = h.member(modelKey{ev.Scope.Tenant, ev.Scope.Model}), false
		}
		changed = m.learn(ev) || changed
	}
	if m == nil {
		return
	}
	if b.Chain != m.chain {
		m.chain, changed = b.Chain, true
	}
	if changed {
		m.shape()
	}
}

// learn records what an event states of its group, and reports whether that was new.
func (m *groupMember) learn(ev *Event) (changed bool) {
	if ev.Scope.Group < 0 || ev.Scope.Group >= cachegroups.MaxGroups || ev.Scope.BlockSize <= 0 {
		return false
	}
	g := &m.groups[ev.Scope.Group]
	if !g.seen {
		g.seen, changed = true, true
	}
	if ev.Spec != "" && g.spec != ev.Spec {
		g.spec, m.kinds, changed = ev.Spec, true, true
	}
	if ev.Ahead > 0 && m.ahead != ev.Ahead {
		m.ahead, m.guesses, changed = ev.Ahead, nil, true // nobody drops a block then
	}
	if ev.Window > 0 && g.window != ev.Window {
		g.window, changed = ev.Window, true
	}
	if g.block < ev.Scope.BlockSize {
		g.block, changed = ev.Scope.BlockSize, true
	}
	if g.least == 0 || ev.Scope.BlockSize < g.least {
		g.least, changed = ev.Scope.BlockSize, true
	}
	if masked := ev.Tokens > len(ev.Engine)*ev.Scope.BlockSize; masked && !g.masked {
		g.masked, changed = true, true
	}
	return changed
}

// shape computes the geometry again, and publishes the held blocks as it requires.
func (m *groupMember) shape() {
	var told GroupSettings
	if m.settings != nil {
		told = *m.settings
	}
	if m.ahead > 0 {
		told.Eagle, told.EagleKnown = 0, true
	}
	rule := told.Rule
	if rule == cachegroups.RuleUnknown {
		rule = cachegroups.Rule021
		if m.kinds {
			rule = cachegroups.Rule032
		}
	}
	if told.Reports {
		m.reports.seen, m.reports.shown = true, true
	}
	groups, unit := m.describe(&told)
	geometry := cachegroups.NewGeometry(rule, groups, unit)
	if geometry == nil {
		return
	}
	if m.guesses == nil {
		m.guesses = cachegroups.NewGuesses(geometry, told)
	} else {
		m.guesses.Fit(geometry)
	}
	m.guesses.Infer(len(groups) == 1 && groups[0].Spec == "")
	m.noteFull(geometry)
	was := m.plain
	m.plain = geometry.Plain()
	if was && !m.plain {
		m.empty()
	}
	m.join(geometry)
}

// filed are the groups of the model's files, where they are wanted and fit what
// arrives: just these groups, and nothing left out of full attention.
func (m *groupMember) filed(told *GroupSettings) []cachegroups.Group {
	m.unfit = ""
	if m.kinds || len(told.Filed) == 0 || slices.ContainsFunc(told.Groups, func(t cachegroups.Group) bool {
		return t.Index >= len(told.Filed) || t.Kind != cachegroups.Unknown && t.Kind != told.Filed[t.Index].Kind
	}) {
		return nil // settings decide
	}
	seen, outside := 0, false
	for i := range m.groups {
		if m.groups[i].seen {
			seen++
			outside = outside || i >= len(told.Filed)
		}
	}
	if outside || seen < len(told.Filed) {
		m.unfit = fmt.Sprintf("the model's config.json makes %d cache groups, but its events have shown %d, so what they are is not known: tell the groups", len(told.Filed), seen)
		return nil
	}
	for i, f := range told.Filed {
		if f.Kind == cachegroups.Full && m.groups[i].masked {
			m.unfit = fmt.Sprintf("its events leave blocks out of group %d, which has full attention by the model's config.json, so what its groups are is not known: tell them", i)
			return nil
		}
	}
	return told.Filed
}

// describe returns the groups, and the unit of hashes (0: not known).
func (m *groupMember) describe(told *GroupSettings) (groups []cachegroups.Group, unit int) {
	filed := m.filed(told)
	unit = told.Unit
	if unit == 0 {
		unit = m.chain.Unit
	}
	for i := range m.groups {
		s := &m.groups[i]
		if !s.seen {
			continue
		}
		g := cachegroups.Group{Index: i, Spec: s.spec, Kind: cachegroups.KindOf(s.spec), Block: s.block, Window: s.window}
		if filed != nil {
			g.Kind, g.Spec, g.Window, g.Chunk = filed[i].Kind, filed[i].Spec, filed[i].Window, filed[i].Chunk
		}
		for _, t := range told.Groups {
			if t.Index != i {
				continue
			}
			if t.Kind != cachegroups.Unknown {
				g.Kind, g.Spec = t.Kind, t.Spec
			}
			if t.Window > 0 {
				g.Window = t.Window
			}
			g.Chunk = t.Chunk
		}
		if g.Kind == cachegroups.Chunked && g.Chunk == 0 {
			g.Chunk = told.Chunk
		}
		if told.Unit > 0 && s.block == told.Unit && told.Block > s.block && told.Block%told.Unit == 0 &&
			(g.Kind == cachegroups.Full || g.Kind == cachegroups.Mamba) {
			g.Block = told.Block // only the ends of prompts were seen yet
		}
		if unit == 0 && s.least < s.block {
			unit = s.least
		}
		groups = append(groups, g)
	}
	if told.Rule == cachegroups.Rule021 && len(groups) > 0 {
		for _, t := range told.Groups { // nothing was long enough for its blocks yet, so it holds none
			if t.Index >= 0 && t.Index < cachegroups.MaxGroups && !m.groups[t.Index].seen {
				t.Block = groups[0].Block
				groups = append(groups, t)
			}
		}
	}
	if len(groups) == 1 && groups[0].Kind == cachegroups.Unknown && groups[0].Spec == "" && !m.groups[groups[0].Index].masked {
		groups[0].Kind = cachegroups.Full // nothing was ever left out of it
	}
	return groups, unit
}

// noteFull has the rest of the index know which group is full attention.
func (m *groupMember) noteFull(g *cachegroups.Geometry) {
	i := g.FullSpec()
	if i < 0 || len(g.Specs) == 1 {
		return
	}
	h := m.holder
	s := h.groups[m.key]
	if s == nil {
		s = &groups{full: -1}
		h.groups[m.key] = s
	}
	if s.full < 0 {
		s.full = g.Specs[i].Index
		h.updateVisibility()
	}
}

// join chooses how the groups' blocks are joined with prompts, and has lookups find
// the member so.
func (m *groupMember) join(g *cachegroups.Geometry) {
	c := &groupClass{geometry: g, assumed: m.guesses.Assumed(), retention: m.retention(g)}
	full := g.FullSpec()
	switch {
	case g.Known && !g.ByTokens() && m.chain.Hash != nil && !m.plain:
		c.chain = m.chain
	case full >= 0, g.Even():
		c.chain.Unit = g.Specs[0].Block
		c.run = g.Known || g.Even()
		c.scope = groupScope{g.Specs[0].Index, g.Specs[0].Block, m.ahead}
	default:
		c.chain.Unit = g.Unit
	}
	c.chain.Ahead = m.ahead
	m.updateTrust(c)
	m.noteGuesses()
	m.alone.Store(m.shared(c))
	m.assign(g, c)
	m.attach()
}

// retention is what is kept of windows: as set, and before 0.32 all of it, where
// nothing was ever left out.
func (m *groupMember) retention(g *cachegroups.Geometry) int {
	if g.Rule == cachegroups.Rule032 {
		if m.settings == nil {
			return 0
		}
		return m.settings.Retention
	}
	for i := range g.Specs {
		for _, group := range g.Specs[i].Groups {
			if g.Specs[i].Kind == cachegroups.Window && m.groups[group].masked {
				return 0
			}
		}
	}
	return cachegroups.Dense
}

// assign gives the member the class, and the slot that it needs.
func (m *groupMember) assign(g *cachegroups.Geometry, c *groupClass) {
	if m.plain && c.assumed.None() && c.scope.group == 0 && m.ahead == 0 {
		m.leave()
		m.class.Store(nil)
		return
	}
	was := m.class.Load()
	c = m.shared(c)
	if was != nil && m.slot >= 0 && was.geometry.Same(g) && was.chain == c.chain && was.run == c.run {
		m.class.Store(c) // the same blocks, other assumptions
		if c.method.kind != byRule {
			m.attach() // before lookups leave it to the shard
		}
		m.model.mu.Lock()
		m.model.list(m.model.members.Load().all)
		m.model.mu.Unlock()
		return
	}
	m.leave()
	m.enter(c)
}

// maxGroupClasses bounds the classes of a model; beyond it members have their own.
const maxGroupClasses = 256

// shared returns the class that equals c, so that members that are looked up alike
// have the same one.
func (m *groupMember) shared(c *groupClass) *groupClass {
	g := m.model
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range g.classes {
		if o.assumed == c.assumed && o.retention == c.retention && o.chain == c.chain && o.run == c.run && o.geometry.Same(c.geometry) {
			return o
		}
	}
	for i := range c.geometry.Specs {
		s := &c.geometry.Specs[i]
		salt := uint64(s.Mask) | uint64(s.Block)<<32
		if c.chain.Hash != nil {
			salt = ^salt
		}
		c.specs = append(c.specs, salt*0x9e3779b97f4a7c15)
	}
	c.method, c.shape = c.methodOf()
	if len(g.classes) < maxGroupClasses {
		g.classes = append(g.classes, c)
	}
	return c
}

// updateTrust updates how reliable predictions are.
func (m *groupMember) updateTrust(c *groupClass) {
	g := c.geometry
	told := m.settings != nil && m.settings.EagleKnown || m.ahead > 0
	t := &GroupTrust{}
	switch {
	case m.unfit != "" && !m.guesses.Believed():
		t.Why = m.unfit
	case !g.Known:
		t.Why = "the kinds of its cache groups are not known, so a safe lower bound is used: tell the groups, or give the model's config.json"
	case m.lost:
		t.Why = "it holds more blocks than are kept of one cache, so less may be credited than is hit"
	case m.ahead > 0 && !m.plain && !g.ByTokens():
		t.Why = "its blocks lie where only vLLM's own hashes show, and those cover the tokens behind a block, which is not followed, so less may be credited than is hit: set disable_lookahead_block_hashes in its speculative configuration"
	case c.chain.Hash == nil && !m.plain && !g.ByTokens():
		t.Why = "its blocks lie where only vLLM's own hashes show, and its hash algorithm or seed is not known, so less may be credited than is hit: set hash_seed"
	case m.chunkOpen(g) && c.assumed.Chunk == 0:
		t.Why = "the chunk size of its attention is not known yet: tell it, or let it be learned from what the replica reports"
	case m.settings != nil && m.settings.Limit != "" && !g.Plain():
		t.Why = m.settings.Limit
	case told && m.settings != nil && m.settings.Doubt != "" && !m.guesses.Believed():
		t.Why = m.settings.Doubt
	case (told || m.guesses.Believed()) && m.reports.doubt():
		t.repeats = true
		t.Why = "it announces blocks again that requests have hit (kv_cache_report_mode full), which cannot always be told from copies, so less may be credited than is hit"
	case told || m.guesses.Believed():
		t.Exact = true
	default:
		t.Unconfirmed = true
		t.Why = "whether a draft model drops blocks is not told, and what the replica reported has not shown it yet"
	}
	m.settled.Store(t.Exact || !g.Known)
	if was := m.trust.Load(); was == nil || *was != *t {
		m.trust.Store(t)
	}
}

func (m *groupMember) chunkOpen(g *cachegroups.Geometry) bool {
	for i := range g.Specs {
		if g.Specs[i].Kind == cachegroups.Chunked && g.Specs[i].Chunk == 0 {
			return true
		}
	}
	return false
}

// groupEvent applies an event to the groups. reported events, from the first on,
// change nothing, because they only repeat what is held; otherwise dense reports
// whether the event goes to the nodes. h.mu is held.
func (h *holder) groupEvent(events []Event) (reported int, dense bool) {
	ev := &events[0]
	switch ev.Kind {
	case Removed:
		if ev.Tier == TierGPU && ev.Scope.Group < cachegroups.MaxGroups && ev.Scope.Group >= 0 {
			for _, m := range h.members {
				m.removed(ev)
			}
		}
		return 0, true
	case Stored:
		if ev.Tier != TierGPU || ev.Scope.Group >= cachegroups.MaxGroups || ev.Scope.Group < 0 {
			return 0, true
		}
		m := h.member(modelKey{ev.Scope.Tenant, ev.Scope.Model})
		if m.plain || m.held == nil {
			reported = m.repeatsPlain(events)
		} else {
			reported = m.repeats(events)
		}
		if reported > 0 {
			return reported, false
		}
		m.again(ev.Scope.Group, ev.Engine)
		return 0, m.plain || m.held == nil || m.stored(ev)
	}
	return 0, true
}

func (m *groupMember) removed(ev *Event) {
	if m.plain || m.held == nil {
		return
	}
	m.model.mu.Lock()
	for _, hash := range ev.Engine {
		m.drop(ev.Scope.Group, hash)
	}
	m.model.mu.Unlock()
	m.settle()
}

func (m *groupMember) stored(ev *Event) (dense bool) {
	c := m.class.Load()
	if c == nil {
		return true
	}
	m.model.mu.Lock()
	if c.chain.Hash == nil && ev.Content != nil && ev.Scope.BlockSize == c.chain.Unit {
		m.nameAll(ev)
	}
	reported := ev.Content == nil && ev.Scope.Scheme == SchemeTokens
	for _, hash := range ev.Engine {
		if reported { // the hashes are the keys, and copies are the reporter's to count
			m.name(hash, hash)
			if m.held[hash]>>ev.Scope.Group&1 != 0 {
				continue
			}
		}
		m.add(ev.Scope.Group, hash)
	}
	m.model.mu.Unlock()
	m.settle()
	if ev.Scope.BlockSize < m.groups[ev.Scope.Group].block {
		return false
	}
	if c.method.kind == byRuns {
		return true
	}
	for i := range c.geometry.Specs {
		if s := &c.geometry.Specs[i]; s.Mask>>ev.Scope.Group&1 != 0 {
			return s.Kind == cachegroups.Full || s.Kind == cachegroups.Unknown
		}
	}
	return true
}

// nameAll notes where the blocks of an event lie that lists all of them.
func (m *groupMember) nameAll(ev *Event) {
	var key uint64
	if ev.HasParent {
		var known bool
		if key, known = m.names[ev.Parent]; !known {
			return
		}
	} else {
		key = m.rootOf(ev.Scope.LoRA)
	}
	m.keys = linkAll(m.keys[:0], key, ev.Content)
	for i, k := range m.keys {
		m.name(ev.Engine[i], k)
	}
}

func (m *groupMember) rootOf(l prefixhash.LoRA) uint64 {
	if k, ok := m.root[l]; ok {
		return k
	}
	if m.root == nil || len(m.root) > 1024 {
		m.root = map[prefixhash.LoRA]uint64{}
	}
	l.Name = strings.Clone(l.Name)
	k := uint64(prefixhash.TokenRoot(m.key.model, l))
	m.root[l] = k
	return k
}

// String describes the geometry for a person.
func (c *groupClass) String() string {
	var b strings.Builder
	for i := range c.geometry.Specs {
		s := &c.geometry.Specs[i]
		if i > 0 {
			b.WriteString(" + ")
		}
		if len(s.Groups) > 1 {
			fmt.Fprintf(&b, "%d×", len(s.Groups))
		}
		fmt.Fprintf(&b, "%v %d", s.Kind, s.Block)
		if s.Window > 0 {
			fmt.Fprintf(&b, "/w%d", s.Window)
		}
	}
	return b.String()
}
