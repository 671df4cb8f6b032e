package hybrid

import (
	"slices"
	"sync"
	"testing"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/offheap"
	"warmroute/prefixhash"
)

// host stands for the index: the blocks of one holder in the nodes.
type host struct {
	sync.Mutex

	settled []uint64
	blocks  map[groupHash]int // copies in the nodes
	keys    map[uint64]uint64 // of blocks in the nodes, by hash
}

func (h *host) Attach()                       {}
func (h *host) Settle(hashes []uint64)        { h.settled = append(h.settled, hashes...) }
func (h *host) Remove(group int, hash uint64) { h.blocks[groupHash{group, hash}]-- }
func (h *host) Find(_ int, hashes []uint64, f func(i int, key uint64, depth int)) {
	for i, hash := range hashes {
		if key, ok := h.keys[hash]; ok {
			f(i, key, 0)
		}
	}
}
func (h *host) Leading(group int, hashes []uint64) (n int) {
	for n < len(hashes) && h.blocks[groupHash{group, hashes[n]}] > 0 {
		n++
	}
	return n
}

// depth is a member's share of a prompt in the nodes, in blocks.
type depth struct{ held, hit int32 }

// nodesByHand stands for the index in a lookup.
type nodesByHand struct {
	found    map[int]int // by group, the holders that a search finds
	depths   map[Home]map[int32]depth
	searched []int
	probes   int
	answers  map[int32]Answer
}

func (n *nodesByHand) Search(group int, hits bool) int {
	if n.searched = append(n.searched, group); hits {
		n.searched = append(n.searched, -1)
	}
	return n.found[group]
}

func (n *nodesByHand) Probe(p *Probe) {
	n.probes++
	for seat, m := range p.Members {
		if m != nil {
			d := n.depths[p.Home][m.ID]
			p.Held[seat], p.Hit[seat] = d.held, d.hit
		}
	}
}

func (n *nodesByHand) Hits([]int32) {}

func (n *nodesByHand) Loaded([]*Member, []int32, []int32) {}

func (n *nodesByHand) Answer(m *Member, a Answer) { n.answers[m.ID] = a }

// length is a prompt of so many tokens.
type length int

func (n length) Tokens() int { return int(n) }

// AppendChain numbers the blocks, by their unit.
func (n length) AppendChain(dst []prefixhash.Key, c Keying) []prefixhash.Key {
	for end := c.Unit; end+c.Ahead <= int(n); end += c.Unit {
		dst = append(dst, prefixhash.Key(c.Unit*10000+end))
	}
	return dst
}

// hashesOf are the hashes of the blocks of a unit that end after these tokens.
func hashesOf(unit int, ends ...int) (all []uint64) {
	for _, end := range ends {
		all = append(all, uint64(unit*10000+end))
	}
	return all
}

// to are the ends of all blocks of a unit up to one.
func to(unit, end int) (all []int) {
	for at := unit; at <= end; at += unit {
		all = append(all, at)
	}
	return all
}

func newMember(g *Model, id int32, s *Settings) (*Member, *host) {
	h := &host{blocks: map[groupHash]int{}}
	return g.NewMember(id, h, s), h
}

// apply has a member observe and then store events, as a batch has them.
func apply(m *Member, c Keying, events ...Event) {
	news := m.ObserveKeying(c)
	for i := range events {
		news = m.Observe(&events[i]) || news
	}
	if news {
		m.Reshape()
	}
	for i := range events {
		m.Stored(&events[i])
	}
}

// find returns the members' hits of a prompt, asked for in group 0.
func find(g *Model, n *nodesByHand, tokens, block int) map[int32]Answer {
	n.answers = map[int32]Answer{}
	n.searched, n.probes = nil, 0
	p := length(tokens)
	keys := p.AppendChain(nil, Keying{Unit: block})
	new(Lookup).Find(g, &Query{Prompt: p, Tokens: tokens, Asked: Home{Block: block}, Keys: keys, Linked: true}, n)
	return n.answers
}

func newTestModel() *Model { return newModel(&Budget{Max: 1000}) }

func newModel(b *Budget) *Model {
	clock, pool := new(epoch.Clock), new(offheap.Pool)
	clock.Init()
	pool.Init(clock)
	return NewModel("m", b, Memory{Clock: clock, Pool: pool})
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func equalAll[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func contents(n int) []prefixhash.Content { return make([]prefixhash.Content, n) }
