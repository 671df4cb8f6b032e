package index

import "warmroute/prefixhash"

// Groups describes the cache groups of a holder, and what a prompt hits in each.
type Groups struct {
	Geometry string     `json:"geometry"` // for a person
	Trust    GroupTrust `json:"trust"`
	Assumed  string     `json:"assumed"` // the assumed values of what events do not contain

	Group int `json:"group"` // full attention's, or the first group's
	Block int `json:"block"` // its tokens a block

	Hit      int         `json:"hit"`       // tokens that the holder takes from its cache
	FullOnly int         `json:"full_only"` // tokens that full attention holds from the start
	Specs    []GroupHeld `json:"specs"`
}

// GroupHeld is what groups that are looked up together hold of a prompt.
type GroupHeld struct {
	Groups []int  `json:"groups"`
	Kind   string `json:"kind"`
	Block  int    `json:"block"`
	Window int    `json:"window,omitempty"`
	Alone  int    `json:"alone"` // tokens it would hit if all others held everything
	Cuts   bool   `json:"cuts"`  // no other would hit less
}

// ExplainGroups is Groups of one holder and a prompt; ok is false when its groups
// were never reported. With a nil prompt it returns the geometry alone.
func (x *Index) ExplainGroups(id HolderID, s Scope, p Prompt) (g Groups, ok bool) {
	m := x.memberOf(id, modelKey{s.Tenant, s.Model})
	if m == nil {
		return g, false
	}
	c := m.class.Load()
	if c == nil {
		c = m.alone.Load()
	}
	trust := m.trust.Load()
	if c == nil || trust == nil {
		return g, false
	}
	g.Geometry, g.Trust, g.Assumed = c.String(), *trust, c.assumed.String()
	of := 0
	if full := c.geometry.FullSpec(); full >= 0 {
		of = full
	} else {
		for i := range c.geometry.Specs {
			if c.geometry.Specs[i].Mask&1 != 0 {
				of = i
			}
		}
	}
	g.Group, g.Block = c.geometry.Specs[of].Index, c.geometry.Specs[of].Block
	if p == nil {
		return g, true
	}
	reader, r := x.enter()
	defer reader.Leave()
	b := r.group.alone(x, r, m, c, &s, nil, p)
	n := p.Tokens()
	if trust.repeats && !m.concerns(c, b.keys) {
		g.Trust = GroupTrust{Exact: true}
	}
	g.Hit = c.geometry.Hit(n, c.assumed, b)
	g.FullOnly = b.Run(of, max(0, n-1)/g.Block) * g.Block
	least := n
	for i := range c.geometry.Specs {
		spec := &c.geometry.Specs[i]
		alone := c.geometry.Alone(i, n, c.assumed, b)
		least = min(least, alone)
		g.Specs = append(g.Specs, GroupHeld{Groups: spec.Groups, Kind: spec.Kind.String(), Block: spec.Block, Window: spec.Window, Alone: alone})
	}
	for i := range g.Specs {
		g.Specs[i].Cuts = g.Specs[i].Alone == least && least < n-1
	}
	return g, true
}

// alone readies the reader's prober for one member.
func (q *groupScratch) alone(x *Index, r *scratch, m *groupMember, c *groupClass, s *Scope, keys []prefixhash.Key, p Prompt) *groupProber {
	q.reset(0)
	b := &q.prober
	b.table, b.class, b.slot = &m.model.table, c, m.slotNow()
	b.keys = q.keys(c.chain, s, keys, p.Tokens(), p)
	q.one[0] = m
	if c.method.kind == byRuns {
		q.runsOf(x, r, q.one[:], c, s, keys, p.Tokens(), p)
		b.slot = 0
	}
	if c.run {
		b.run = int(q.ends(x, r, c.scope, q.one[:], s, b.keys, -1).ends[0])
	}
	return b
}
