package hybrid

import (
	"math/bits"
	"slices"

	"warmroute/prefixhash"
)

// Lookup is the working memory of one lookup at a time. Its zero value is ready.
type Lookup struct {
	query   *Query
	index   Index
	members []*Member // by seat
	request Probe

	chains memo[Keying, []prefixhash.Key]
	depths memo[Home, depths]
	todo   []uint64 // the seats that are not answered yet, as bits
	prober prober
	one    [1]*Member

	tier           tierProber
	device, loaded []int32 // by seat, tokens
}

// Find answers a query for the members of a model. It takes no lock, and allocates only for
// more members or longer prompts than before.
func (l *Lookup) Find(g *Model, q *Query, index Index) {
	r := g.roster.Load()
	l.begin(q, index, r.members)
	searched := l.search(r)
	l.elsewhere(r, searched)
	l.evaluate(g, r)
	l.below(g, r)
	l.end()
}

func (l *Lookup) begin(q *Query, index Index, members []*Member) {
	l.query, l.index, l.members = q, index, members
	l.chains.reset()
	l.depths.reset()
}

// end drops the references to the query and the members.
func (l *Lookup) end() {
	l.query, l.index, l.members, l.one[0] = nil, nil, nil, nil
	if l.tier.plan != nil {
		l.tier = tierProber{agree: l.tier.agree[:0]}
	}
}

// search looks the query up where the caller asks. It returns the group whose members it
// finds with their hits, or -1 if it finds them with the blocks that they hold.
//
// A caller may not know which group is full attention. If it asks where no member is,
// search continues in the only home of full attention.
func (l *Lookup) search(r *roster) (group int) {
	q := l.query
	covered := q.covered()
	if covered && slices.Contains(r.homes, q.Asked) {
		l.index.Search(q.Asked.Group, true)
		return q.Asked.Group
	}
	found := l.index.Search(q.Asked.Group, false)
	if !covered || found > 0 || len(r.homes) != 1 || r.homes[0] != (Home{r.homes[0].Group, q.Asked.Block, 0}) {
		return -1
	}
	q.Asked = r.homes[0]
	l.index.Search(q.Asked.Group, true)
	return q.Asked.Group
}

// elsewhere answers for the members whose full attention has another home than the searched
// one, or that may hit a block behind the caller's last key.
func (l *Lookup) elsewhere(r *roster, searched int) {
	for _, home := range r.homes {
		here := home == Home{searched, l.query.Asked.Block, 0}
		if here && (!r.lastToken || l.query.Tokens/home.Block <= len(l.query.Keys)) {
			continue
		}
		d := l.probe(home)
		for seat, m := range l.members {
			if m == nil {
				continue
			}
			if p := m.joined.Load(); p != nil && p.along && p.home == home && (!here || p.lastToken) {
				l.index.Answer(m, Answer{d.hit[seat] * int32(home.Block), d.held[seat] * int32(home.Block)})
			}
		}
	}
}

// evaluate evaluates vLLM's rule for each member that needs it, and gives its hit to all
// members for which every probe has the same result.
func (l *Lookup) evaluate(g *Model, r *roster) {
	if len(r.ruled) == 0 {
		return
	}
	l.todo = append(l.todo[:0], r.ruled...)
	for i := range l.todo {
		for l.todo[i] != 0 {
			seat := i<<6 + bits.TrailingZeros64(l.todo[i])
			p := l.members[seat].joined.Load()
			if p == nil {
				l.todo[i] &^= 1 << (seat & 63)
				continue
			}
			l.aim(g, p, seat)
			l.agree(p, seat)
			a := Answer{Hit: int32(p.hit(l.query.Tokens, &l.prober))}
			if p.inNodes(0) {
				a.Full = int32(l.prober.full)
			}
			for w, agree := range l.prober.agree {
				l.todo[w] &^= agree
				for ; agree != 0; agree &= agree - 1 {
					l.index.Answer(l.members[w<<6+bits.TrailingZeros64(agree)], a)
				}
			}
		}
	}
}

// aim has the prober probe the blocks of the member in a seat.
func (l *Lookup) aim(g *Model, p *Plan, seat int) {
	b := &l.prober
	b.model, b.plan, b.seat = g, p, seat
	b.keys = l.keys(p.keying)
	b.held, b.full = nil, 0
	if p.inNodes(0) {
		b.held = l.probe(p.home).held
		b.full = int(b.held[seat]) * p.home.Block
	}
}

// agree collects the members that share the answer of the one in a seat: they have its plan
// and its depths in the nodes.
func (l *Lookup) agree(p *Plan, seat int) {
	b := &l.prober
	b.agree = append(b.agree[:0], l.todo...)
	for w := range b.agree {
		for left := b.agree[w]; left != 0; left &= left - 1 {
			at := w<<6 + bits.TrailingZeros64(left)
			if l.members[at].joined.Load() != p || b.held != nil && b.held[at] != b.held[seat] {
				b.agree[w] &^= 1 << (at & 63)
			}
		}
	}
}

// aimAt begins a lookup of one member alone, and has the prober probe it.
func (l *Lookup) aimAt(m *Member, p *Plan, q *Query, index Index) *prober {
	l.one[0] = m
	l.begin(q, index, l.one[:])
	l.prober.agree = l.prober.agree[:0]
	l.aim(m.model, p, 0)
	l.prober.seat = m.Seat() // in the table
	return &l.prober
}

// keys returns the prompt's keys on a chain.
func (l *Lookup) keys(c Keying) []prefixhash.Key {
	q := l.query
	if c.Hash == nil && c.Ahead == 0 && c.Sight == SightUsual && c.Unit == q.Asked.Block && q.Tokens/c.Unit == len(q.Keys) {
		return q.Keys
	}
	k, known := l.chains.at(c)
	if !known {
		*k = q.Prompt.AppendChain((*k)[:0], c)
	}
	return *k
}

// probe returns the members' depths in a home.
func (l *Lookup) probe(home Home) depths {
	d, known := l.depths.at(home)
	if known {
		return *d
	}
	n := len(l.members)
	d.held, d.hit = slices.Grow(d.held[:0], n)[:n], slices.Grow(d.hit[:0], n)[:n]
	clear(d.held)
	clear(d.hit)
	if keys := l.keys(home.keying()); len(keys) > 0 {
		l.request = Probe{Home: home, Keys: keys, Tokens: l.query.Tokens, Members: l.members, Held: d.held, Hit: d.hit}
		l.index.Probe(&l.request)
		l.request = Probe{}
	}
	return *d
}

// prober probes the blocks of one member, and keeps the members for which every probe had
// the same result. It implements Prober.
type prober struct {
	model *Model
	plan  *Plan
	keys  []prefixhash.Key
	seat  int
	held  []int32  // by seat, the blocks that are held at home from the start; nil: the plan has no home
	full  int      // the tokens of the member's
	agree []uint64 // seats, as bits
}

// Run implements Prober.
func (b *prober) Run(spec, end int) (held bool, from int) {
	unit := b.plan.keying.Unit
	switch at := end / unit; {
	case end%unit != 0 || at < 1 || at > len(b.keys):
	case b.plan.inNodes(spec):
		held = end <= b.full
	default:
		held = b.model.table.probe(b.plan.rowOf(spec, uint64(b.keys[at-1])), b.seat, b.agree)
	}
	return held, end - 1
}

// Depth implements Prober.
func (b *prober) Depth(spec, limit int) int {
	block := b.plan.layout.Specs[spec].Block
	if b.plan.inNodes(spec) {
		return min(limit, b.full/block)
	}
	return depthOf(b, spec, block, limit)
}
