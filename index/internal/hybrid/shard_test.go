package hybrid

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/index/internal/offheap"
	"warmroute/index/internal/radix"
	"warmroute/prefixhash"
)

const nodeBlocks = 40

// stand is a shard with one node, of which each slot has the first blocks.
type stand struct {
	t     *testing.T
	shard Shard
	tree  radix.Tree
	nodes radix.Nodes
	at    radix.Place
	keys  []uint64
	slots []*standing
}

// standing is the member in a slot. It is the member's host, too.
type standing struct {
	*host
	stand  *stand
	slot   int
	member *Member
	blocks radix.Holding
	depth  int
	groups []Group
}

func (s *standing) Settle(hashes []uint64) { s.stand.shard.Settle(s.slot, &s.blocks, hashes) }

func (s *standing) Attach() {
	m := s.member
	if !m.Attached(0) {
		m = nil
	}
	if !s.stand.shard.Follows(s.slot, m) {
		s.stand.shard.Release(s.slot)
		s.stand.shard.Follow(s.slot, m, &s.blocks)
	}
}

// Run and Held probe the member's blocks for the rule.
func (s *standing) run() int { return s.depth }

type standingProber struct{ s *standing }

func (p standingProber) Held(spec, end int) bool {
	l := p.s.member.current().layout
	if l.Specs[spec].Mask&1 != 0 {
		return end <= p.s.run()*16
	}
	mask := l.Specs[spec].Mask
	return end%16 == 0 && end <= nodeBlocks*16 && p.s.member.held.groups[p.s.stand.keys[end/16-1]]&mask == mask
}

func (p standingProber) Depth(spec, limit int) int {
	b := p.s.member.current().layout.Specs[spec].Block
	for k := range limit {
		if !p.Held(spec, (k+1)*b) {
			return k
		}
	}
	return limit
}

func newStand(t *testing.T, caches [][]Group, depths []int) *stand {
	st := &stand{t: t}
	clock, pool, sets := new(epoch.Clock), new(offheap.Pool), new(holderset.Sets)
	clock.Init()
	pool.Init(clock)
	t.Cleanup(pool.Close)
	sets.Init(clock)
	st.nodes.Init(clock, pool, sets, 8)
	st.nodes.Add(&st.tree, 1)
	st.shard.Init(sets, &st.nodes)
	for i := range nodeBlocks {
		st.keys = append(st.keys, uint64(i+1)*hashtable.Golden)
	}
	g := newModel(&Budget{Max: 1 << 20})
	for i, groups := range caches {
		s := &standing{host: &host{blocks: map[groupHash]int{}}, stand: st, slot: i * 40, groups: groups, depth: depths[i]} // in several words
		s.member = g.NewMember(int32(i), s, nil)
		s.blocks.Init(&st.nodes, s.slot)
		if i == 0 {
			st.at = st.tree.New(st.keys, st.keys)
			s.blocks.Record(st.at, st.keys)
			st.tree.Begin(st.at, 0, nodeBlocks, s.slot, 1)
			s.blocks.Joined(st.at)
		} else {
			s.blocks.Record(st.at, st.keys[:s.depth])
			s.blocks.Add(st.at, s.depth, 1)
		}
		st.slots = append(st.slots, s)
		st.shard.Stored(s.slot, st.at, st.keys[:s.depth]) // nothing is followed yet
	}
	return st
}

// tell configures a member with its groups, of which some drop a block.
func (s *standing) tell(rule Rule, eagle uint32, replay int) {
	s.member.Configure(&Settings{Rule: rule, Chunk: 64, EagleKnown: true, Eagle: eagle, Replay: replay, ReplayKnown: true})
	for i, g := range s.groups {
		e := Event{Group: i, Block: g.Block, Spec: g.Spec, Window: g.Window, Tokens: 2 * g.Block, Hashes: []uint64{s.stand.keys[0]}}
		if s.member.Observe(&e) {
			s.member.Reshape()
		}
	}
}

// narrow returns the slots' hits of a prompt, and the set of the decided slots.
func (st *stand) narrow(tokens, keys int, plain bool) (depth, held []int32, decided []uint64) {
	words := (st.slots[len(st.slots)-1].slot + 64) / 64
	n := Narrowing{Tokens: tokens, Keys: keys, Block: 16, Plain: plain, First: make([]uint64, words), Decided: make([]uint64, words),
		Depth: make([]int32, words*64), Held: make([]int32, words*64)}
	prompt := make([]prefixhash.Key, keys)
	for i := range prompt {
		prompt[i] = prefixhash.Key(st.keys[i])
	}
	n.Path = st.tree.Trace(nil, prompt)
	for _, s := range st.slots {
		if d := min(s.depth, keys); d > 0 {
			n.First[s.slot>>6] |= 1 << (s.slot & 63)
			n.Depth[s.slot] = int32(d)
		}
	}
	st.shard.Narrow(&n)
	return n.Depth, n.Held, n.Decided
}

// TestNarrowFollowsTheRule: after any stores and removals, with any configuration, the
// shard narrows the members' depth to the rule's result.
func TestNarrowFollowsTheRule(t *testing.T) {
	wide := windowOf16.at(2)
	wide.Window = 130
	caches := [][]Group{
		{fullOf16, windowOf16}, {fullOf16}, {fullOf16, mambaOf16.at(1)}, {fullOf16, windowOf16, wide}, {fullOf16, windowOf64},
		{fullOf16, {Index: 1, Kind: Chunked, Spec: "c", Block: 16, Chunk: 64}}, {{Block: 16}, {Index: 1, Block: 16}, {Index: 2, Block: 16}}, {fullOf16, windowOf16},
	}
	st := newStand(t, caches, []int{nodeBlocks, 30, 25, 40, 37, 20, 33, 1})
	rnd := rand.New(rand.NewPCG(7, 8))
	decided, cut := 0, 0
	for step := range 6000 {
		s := st.slots[rnd.IntN(len(st.slots))]
		group := rnd.IntN(len(s.groups))
		stride := s.groups[group].Block / 16
		switch rnd.IntN(20) {
		case 0:
			s.tell([]Rule{Rule027, Rule032}[rnd.IntN(2)], []uint32{0, 1, 3, 7, 2}[rnd.IntN(5)], []int{0, 0, 32}[rnd.IntN(3)])
		case 1:
			if rnd.IntN(10) == 0 {
				st.shard.Release(s.slot) // as the index does first
				s.member.Clear(false)
				s.member.Reshape()
			}
			st.shard.Stored(s.slot, st.at, st.keys[:s.depth]) // announced again
		case 2, 3, 4:
			s.member.Removed(group, st.keys[rnd.IntN(nodeBlocks):][:1])
		default:
			from := rnd.IntN(nodeBlocks / stride)
			var hashes []uint64
			for k := from; k < min(from+1+rnd.IntN(8), nodeBlocks/stride); k++ {
				hashes = append(hashes, st.keys[(k+1)*stride-1])
			}
			s.member.Stored(&Event{Group: group, Block: s.groups[group].Block, Hashes: hashes})
		}
		tokens := 2 + rnd.IntN(nodeBlocks*16)
		depth, held, narrowed := st.narrow(tokens, tokens/16, true)
		for i, s := range st.slots {
			p := s.member.joined.Load()
			on := narrowed[s.slot>>6]>>(s.slot&63)&1 != 0
			first := min(s.depth, tokens/16) > 0
			if want := p != nil && p.decides(0) && first; on != want {
				t.Fatalf("step %d: member %d is decided: %v", step, i, on)
			}
			if !on {
				continue
			}
			decided++
			want := p.layout.Hit(tokens, p.assumed, standingProber{s})
			if int(depth[s.slot])*16 != want {
				t.Fatalf("step %d: member %d (%v, %v, rule %d) hits %d of %d tokens, the rule says %d", step, i, p, p.assumed, p.layout.Rule, depth[s.slot]*16, tokens, want)
			}
			full := min(s.depth, tokens/16)
			if int(held[s.slot]) != full {
				t.Fatalf("step %d: member %d holds %d blocks, want %d", step, i, held[s.slot], full)
			}
			if want > 0 && want/16 < full {
				cut++
			}
		}
	}
	if decided < 5000 || cut < 1000 {
		t.Errorf("%d decided, %d cut", decided, cut)
	}
	for _, s := range st.slots {
		st.shard.Cut(s.slot, st.at.Node(), 0)
		st.shard.Release(s.slot)
		st.shard.Follow(s.slot, nil, &s.blocks)
		equal(t, fmt.Sprint("slot ", s.slot, " has ends"), st.shard.HasEnds(s.slot), false)
	}
	equal(t, "spans", len(st.shard.Ends().Of(st.at.Node())), 0)
	_, _, narrowed := st.narrow(100, 6, true)
	for _, word := range narrowed {
		equal(t, "decided", word, uint64(0))
	}
}

// TestNarrowLeavesAlone: the shard leaves members without other groups alone unless the
// caller wants them, and members that may hit a block behind the last key.
func TestNarrowLeavesAlone(t *testing.T) {
	st := newStand(t, [][]Group{{fullOf16, windowOf16}, {fullOf16}}, []int{nodeBlocks, 40})
	st.slots[0].tell(Rule032, 1, 0)
	st.slots[1].tell(Rule032, 1, 0)
	for i, c := range []struct {
		tokens, keys int
		plain        bool
		grouped, one bool
	}{
		{97, 6, true, true, true}, {97, 6, false, true, false}, {96, 5, true, false, true}, {95, 5, true, true, true}, {96, 6, true, true, true},
	} {
		_, _, decided := st.narrow(c.tokens, c.keys, c.plain)
		if grouped, one := decided[0]&1 != 0, decided[0]>>40&1 != 0; grouped != c.grouped || one != c.one {
			t.Errorf("%d: decided %v and %v", i, grouped, one)
		}
	}
}
