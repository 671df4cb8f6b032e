package hybrid

// Groups describes the cache groups of a member, and how much of a prompt each hits.
type Groups struct {
	Geometry string `json:"geometry"` // for a person
	Trust    Trust  `json:"trust"`
	Assumed  string `json:"assumed"` // the assumed values of settings that events do not contain

	Group int `json:"group"` // full attention's, or the first group's
	Block int `json:"block"` // its tokens a block

	Hit      int         `json:"hit"`       // tokens that the member takes from its cache
	FullOnly int         `json:"full_only"` // tokens that full attention holds from the start
	Specs    []GroupHeld `json:"specs"`
}

// GroupHeld describes the blocks of a prompt in groups that are looked up together.
type GroupHeld struct {
	Groups []int  `json:"groups"`
	Kind   string `json:"kind"`
	Block  int    `json:"block"`
	Window int    `json:"window,omitempty"`
	Alone  int    `json:"alone"` // tokens it would hit if all others held everything
	Cuts   bool   `json:"cuts"`  // no other would hit less
}

// Describe returns the layout of a member and its trust; false: its events have not shown
// a group yet.
func (m *Member) Describe() (g Groups, ok bool) {
	p := m.current()
	trust, known := m.Trust()
	if p == nil || !known {
		return g, false
	}
	s := &p.layout.Specs[p.mainSpec()]
	return Groups{Geometry: p.String(), Trust: trust, Assumed: p.assumed.String(), Group: s.Index, Block: s.Block}, true
}

// current returns the plan by which lookups find the member, or would find it.
func (m *Member) current() *Plan {
	if p := m.joined.Load(); p != nil {
		return p
	}
	return m.plan.Load()
}

// mainSpec returns the spec of full attention, or of group 0.
func (p *Plan) mainSpec() (spec int) {
	if full := p.layout.FullSpec(); full >= 0 {
		return full
	}
	for i := range p.layout.Specs {
		if p.layout.Specs[i].Mask&1 != 0 {
			spec = i
		}
	}
	return spec
}

// Explain adds the member's hit of a prompt to g, block by block by vLLM's rule.
func (l *Lookup) Explain(g *Groups, m *Member, q *Query, index Index) {
	p := m.current()
	b, spec, n := l.aimAt(m, p, q, index), p.mainSpec(), q.Tokens
	defer l.end()
	if g.Trust.repeats {
		m.host.Lock()
		if !m.concerns(p, b.keys) {
			g.Trust = Trust{Exact: true}
		}
		m.host.Unlock()
	}
	if f := m.tiered.Load(); g.Trust.gone && f != nil {
		if below := l.guessBelow(f, n); below.kept == below.sure {
			g.Trust = Trust{Exact: true}
		}
	}
	if mixed, ok := q.Prompt.(Mixed); ok && g.Trust.Exact {
		if why := m.unseenWhy(mixed.Mixes()); why != "" {
			g.Trust = Trust{Above: true, Why: why}
		}
	}
	if f := m.tiered.Load(); f != nil && g.Trust.Exact {
		if why := l.underWay(f, q); why != "" {
			g.Trust = Trust{Why: why}
		}
	}
	g.Hit = p.hit(n, b)
	g.FullOnly = b.Depth(spec, max(0, n-1)/g.Block) * g.Block
	least := n
	for i := range p.layout.Specs {
		s := &p.layout.Specs[i]
		alone := p.layout.Alone(i, n, p.assumed, b)
		least = min(least, alone)
		g.Specs = append(g.Specs, GroupHeld{Groups: s.Groups, Kind: s.Kind.String(), Block: s.Block, Window: s.Window, Alone: alone})
	}
	for i := range g.Specs {
		g.Specs[i].Cuts = g.Specs[i].Alone == least && least < n-1
	}
}
