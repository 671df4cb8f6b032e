package hybrid

// told returns the configured settings. They say that no group drops a block if hashes
// cover the tokens behind a block.
func (m *Member) told() (s Settings) {
	if m.settings != nil {
		s = *m.settings
	}
	if m.observed.ahead > 0 {
		s.Eagle, s.EagleKnown = 0, true
	}
	return s
}

// assumed returns the settings of lookups, none where they are not given.
func (s *Settings) assumed() Assumed { return Assumed{Eagle: s.Eagle, Replay: s.Replay} }

// least returns the settings of the fewest hits: the worst value of each that is not given.
func (s *Settings) least(l *Layout) Assumed {
	a := s.assumed()
	if !s.EagleKnown {
		a.Eagle = ^uint32(0)
	}
	if s.Replay == 0 && !s.ReplayKnown && l.mayReplay() {
		a.Replay = maxAlign
	}
	return a
}

// layout describes the cache; nil: no group has a block size yet.
func (m *Member) layout(told *Settings) *Layout {
	rule := told.Rule
	if rule == RuleUnknown && m.observed.kinds {
		rule = Rule032
	}
	unit := told.Unit
	if unit == 0 {
		unit = m.observed.keying.Unit
	}
	var groups []Group
	for i := range m.observed.groups {
		s := &m.observed.groups[i]
		if !s.seen {
			continue
		}
		if unit == 0 && s.least < s.block {
			unit = s.least
		}
		groups = append(groups, told.adjust(Group{Index: i, Spec: s.spec, Kind: KindOf(s.spec), Block: s.block, Window: s.window}))
	}
	if len(groups) == 1 && groups[0].Kind == Unknown && groups[0].Spec == "" && !m.observed.groups[groups[0].Index].masked {
		groups[0].Kind = Full // events have never left a block out of it
		if rule == RuleUnknown {
			rule = Rule032 // of such a cache all releases have one
		}
	}
	l := NewLayout(rule, groups, unit)
	if l != nil && m.observed.beyond {
		l.Known = false
	}
	return l
}

// BlockSize returns the tokens of a block, by its events, if the cache is one group of full
// attention; otherwise 0.
func (m *Member) BlockSize() int {
	if p := m.plan.Load(); p != nil && p.layout.Plain() {
		return p.layout.Specs[0].Block
	}
	return 0
}

// adjust returns an observed group with the settings for it.
func (s *Settings) adjust(g Group) Group {
	if g.Kind == Chunked {
		g.Chunk = s.Chunk
	}
	if s.Unit > 0 && g.Block == s.Unit && s.Block > g.Block && s.Block%s.Unit == 0 && (g.Kind == Full || g.Kind == Mamba) {
		g.Block = s.Block // events have shown only the ends of prompts yet
	}
	return g
}
