package hybrid

import (
	"fmt"
	"slices"
)

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

// layout describes the cache; nil: no group has a block size yet.
func (m *Member) layout(told *Settings) *Layout {
	rule := told.Rule
	if rule == RuleUnknown {
		rule = Rule021
		if m.observed.kinds {
			rule = Rule032
		}
	}
	unit := told.Unit
	if unit == 0 {
		unit = m.observed.keying.Unit
	}
	filed := m.filed(told)
	var groups []Group
	for i := range m.observed.groups {
		s := &m.observed.groups[i]
		if !s.seen {
			continue
		}
		if unit == 0 && s.least < s.block {
			unit = s.least
		}
		g := Group{Index: i, Spec: s.spec, Kind: KindOf(s.spec), Block: s.block, Window: s.window}
		if filed != nil {
			g.Kind, g.Spec, g.Window, g.Chunk = filed[i].Kind, filed[i].Spec, filed[i].Window, filed[i].Chunk
		}
		groups = append(groups, told.adjust(g))
	}
	groups = m.unseen(told, groups)
	if len(groups) == 1 && groups[0].Kind == Unknown && groups[0].Spec == "" && !m.observed.groups[groups[0].Index].masked {
		groups[0].Kind = Full // events have never left a block out of it
	}
	return NewLayout(rule, groups, unit)
}

// BlockSize returns the tokens of a block, by its events, if the cache is one group of full
// attention; otherwise 0.
func (m *Member) BlockSize() int {
	if p := m.plan.Load(); p != nil && p.layout.Plain() {
		return p.layout.Specs[0].Block
	}
	return 0
}

// filed returns the groups of the model's files if they are needed and fit the events: the
// events show exactly these groups, and full attention lacks no block.
func (m *Member) filed(told *Settings) []Group {
	m.unfit = ""
	if m.observed.kinds || len(told.Filed) == 0 || slices.ContainsFunc(told.Groups, func(t Group) bool {
		return t.Index >= len(told.Filed) || t.Kind != Unknown && t.Kind != told.Filed[t.Index].Kind
	}) {
		return nil // settings decide
	}
	seen, outside := 0, false
	for i := range m.observed.groups {
		if m.observed.groups[i].seen {
			seen++
			outside = outside || i >= len(told.Filed)
		}
	}
	if outside || seen < len(told.Filed) {
		m.unfit = fmt.Sprintf("the model's config.json makes %d cache groups, but its events have shown %d, so their kinds are not known: configure the groups", len(told.Filed), seen)
		return nil
	}
	for i, f := range told.Filed {
		if f.Kind == Full && m.observed.groups[i].masked {
			m.unfit = fmt.Sprintf("its events leave blocks out of group %d, which has full attention by the model's config.json, so what its groups are is not known: tell them", i)
			return nil
		}
	}
	return told.Filed
}

// adjust returns an observed group with the settings for it.
func (s *Settings) adjust(g Group) Group {
	seen := g.Block
	for _, t := range s.Groups {
		if t.Index != g.Index {
			continue
		}
		if t.Kind != Unknown {
			g.Kind, g.Spec = t.Kind, t.Spec
		}
		if t.Window > 0 {
			g.Window = t.Window
		}
		g.Chunk = t.Chunk
	}
	if g.Kind == Chunked && g.Chunk == 0 {
		g.Chunk = s.Chunk
	}
	if s.Unit > 0 && seen == s.Unit && s.Block > seen && s.Block%s.Unit == 0 && (g.Kind == Full || g.Kind == Mamba) {
		g.Block = s.Block // events have shown only the ends of prompts yet
	}
	return g
}

// unseen appends, for vLLM 0.21, the configured groups that events have not shown: no
// prompt was long enough for one of their blocks, so they hold none.
func (m *Member) unseen(told *Settings, groups []Group) []Group {
	if told.Rule != Rule021 || len(groups) == 0 {
		return groups
	}
	for _, t := range told.Groups {
		if t.Index >= 0 && t.Index < MaxGroups && !m.observed.groups[t.Index].seen {
			t.Block = groups[0].Block
			groups = append(groups, t)
		}
	}
	return groups
}

// retention returns which blocks of windows vLLM keeps: before 0.32 it keeps all, unless
// events have left some out.
func (m *Member) retention(l *Layout) int {
	if l.Rule == Rule032 {
		if m.settings == nil {
			return 0
		}
		return m.settings.Retention
	}
	for i := range l.Specs {
		for _, group := range l.Specs[i].Groups {
			if l.Specs[i].Kind == Window && m.observed.groups[group].masked {
				return 0
			}
		}
	}
	return RetainAll
}
