package hybrid

import (
	"slices"
	"sync"
	"sync/atomic"

	"warmroute/index/internal/holderset"
)

// Budget bounds the blocks that the members of all models keep.
type Budget struct {
	Max  int
	used atomic.Int64
}

// Used returns how many blocks are kept.
func (b *Budget) Used() int { return int(b.used.Load()) }

// take reserves room for a block, and reports whether the budget has any.
func (b *Budget) take() bool {
	if b.used.Add(1) > int64(b.Max) {
		b.used.Add(-1)
		return false
	}
	return true
}

func (b *Budget) give(blocks int) { b.used.Add(-int64(blocks)) }

// Model has the members that serve one model, the table of their blocks, and the prompts
// in flight to them.
type Model struct {
	name   string
	budget *Budget

	mu     sync.Mutex     // of writers
	sets   holderset.Sets // of seats
	table  table
	tiers  table // of the blocks in CPU memory, by Plan.rowBelow
	roster atomic.Pointer[roster]
	free   []int // seats, the longest free first
	plans  []*Plan

	sights atomic.Uint32 // Sights
	mixed  atomic.Uint32 // what prompts have mixed into their blocks

}

// NewModel returns a model without members. Its name is the root of its prompts' keys.
func NewModel(name string, b *Budget, m Memory) *Model {
	g := &Model{name: name, budget: b}
	g.sets.Init(m.Clock)
	g.table.init(m, &g.sets)
	g.tiers.init(m, &g.sets)
	g.roster.Store(&roster{})
	return g
}

// Close drops the blocks of all members for good, and frees their memory.
func (g *Model) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.table.close()
	g.tiers.close()
}

// roster is the members that lookups find. It is immutable.
type roster struct {
	members   []*Member // by seat, nil where free
	ruled     []uint64  // the seats for which a lookup evaluates vLLM's rule, as bits
	homes     []Home    // where the other members have their full attention
	tiered    []uint64  // the seats of members with a tier in CPU memory, as bits
	lastToken bool      // some members' full attention is looked up to the prompt's last token
}

// minFreeSeats seats must be free before one is used again: a running lookup must not
// take one member's blocks for another's.
const minFreeSeats = 64

// enter gives the member a seat, and publishes its blocks.
func (m *Member) enter(p *Plan) {
	m.joined.Store(p)
	if p == nil {
		return
	}
	if p.along {
		m.host.Attach() // before lookups leave the member to the shards
	}
	g := m.model
	g.mu.Lock()
	defer g.mu.Unlock()
	all := slices.Clone(g.roster.Load().members)
	seat := len(all)
	if n := len(g.free); n > minFreeSeats {
		seat, g.free = g.free[0], g.free[1:]
	} else if seat == holderset.MaxSlots {
		m.lose()
		return
	} else {
		all = append(all, nil)
	}
	all[seat] = m
	m.seat.Store(int32(seat) + 1)
	for hash, groups := range m.held.groups {
		m.publish(hash, 0, groups)
	}
	m.publishTier(true)
	g.list(all)
}

// leave takes the member out of all lookups.
func (m *Member) leave() {
	seat := m.Seat()
	if seat < 0 {
		return
	}
	g := m.model
	g.mu.Lock()
	defer g.mu.Unlock()
	all := slices.Clone(g.roster.Load().members)
	all[seat] = nil
	g.list(all)
	for hash, groups := range m.held.groups {
		m.publish(hash, groups, 0)
	}
	m.publishTier(false)
	g.free = append(g.free, seat)
	m.seat.Store(0)
}

// list makes members the model's roster. model.mu is held.
func (g *Model) list(members []*Member) {
	next := &roster{members: members}
	for seat, m := range members {
		if m == nil {
			continue
		}
		p := m.joined.Load()
		if m.tiered.Load() != nil {
			next.tiered = append(next.tiered, make([]uint64, max(0, seat>>6+1-len(next.tiered)))...)
			next.tiered[seat>>6] |= 1 << (seat & 63)
		}
		if !p.along {
			next.ruled = append(next.ruled, make([]uint64, max(0, seat>>6+1-len(next.ruled)))...)
			next.ruled[seat>>6] |= 1 << (seat & 63)
			continue
		}
		if !slices.Contains(next.homes, p.home) {
			next.homes = append(next.homes, p.home)
		}
		next.lastToken = next.lastToken || p.lastToken
	}
	g.roster.Store(next)
}

// maxPlans bounds the plans that a model shares among its members.
const maxPlans = 256

// share returns the model's plan that equals p, so that members with equal lookups have
// the same plan.
func (g *Model) share(p *Plan) *Plan {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range g.plans {
		if o.assumed == p.assumed && o.sameBlocks(p) {
			return o
		}
	}
	p.complete()
	if len(g.plans) < maxPlans {
		g.plans = append(g.plans, p)
	}
	return p
}
