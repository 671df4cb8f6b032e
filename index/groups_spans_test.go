package index

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
	"warmroute/render/testkit/race"
)

// hybridCache is a replica with several groups that stores and evicts at random.
type hybridCache struct {
	holder Holder
	life   uint64
	groups []hybridGroup // the last is full attention
	names  [][]uint64    // held, by group
}

type hybridGroup struct {
	spec   string
	window int
	block  int
}

// spansTraffic is an index with hybrid replicas of each kind, and prompts that share
// their beginnings.
type spansTraffic struct {
	*Index
	t       *testing.T
	rnd     *rand.Rand
	caches  []*hybridCache
	prompts []tokensPrompt
	found   Found
}

var spansCaches = [...][]hybridGroup{
	{{"sliding_window", 64, 16}, {"full_attention", 0, 16}},
	{{"sliding_window", 33, 16}, {"sliding_window", 200, 16}, {"full_attention", 0, 16}},
	{{"mamba", 0, 16}, {"mamba", 0, 16}, {"full_attention", 0, 16}},
	{{"mamba", 0, 64}, {"sliding_window", 70, 32}, {"full_attention", 0, 16}},
	{{"chunked_local_attention", 0, 16}, {"full_attention", 0, 16}},
	{{"chunked_local_attention", 0, 16}, {"sliding_window", 48, 16}, {"full_attention", 0, 16}},
	{{"mamba", 0, 16}, {"full_attention", 0, 16}},
	{{"full_attention", 0, 16}},
	{{"sliding_window", 100, 16}, {"full_attention", 0, 16}},
	{{"sliding_window", 20, 16}, {"sliding_window", 70, 16}, {"sliding_window", 130, 16}, {"full_attention", 0, 16}},
	{{"mamba", 0, 16}, {"sliding_window", 20, 16}, {"full_attention", 0, 16}},
	{{"", 0, 16}, {"", 0, 16}, {"", 0, 16}},
}

func newSpansTraffic(t *testing.T, seed uint64, max int) *spansTraffic {
	x := New(Options{Now: time.Now, MaxBlocks: max})
	t.Cleanup(x.Close)
	e := &spansTraffic{Index: x, t: t, rnd: rand.New(rand.NewPCG(seed, 1))}
	for i, groups := range spansCaches {
		c := &hybridCache{holder: Holder{Replica: fmt.Sprint("r", i)}, groups: groups, names: make([][]uint64, len(groups))}
		e.tell(c, 96)
		c.life = x.Begin(c.holder)
		e.caches = append(e.caches, c)
	}
	for range 6 {
		p := somePrompt(40 * groupBlock)
		if len(e.prompts) > 0 {
			from := e.rnd.IntN(len(p))
			for i := from; i < len(p); i++ {
				p[i] += uint32(e.rnd.IntN(2)) * 1000
			}
		}
		e.prompts = append(e.prompts, p)
	}
	return e
}

// tell sets at random which groups drop a block, and by which rule.
func (e *spansTraffic) tell(c *hybridCache, chunk int) {
	full := uint32(1) << (len(c.groups) - 1)
	told := &GroupSettings{Chunk: chunk, EagleKnown: true, Replay: []int{0, 0, 0, 32}[e.rnd.IntN(4)]}
	told.Eagle = []uint32{0, full, ^uint32(0), full - 1, full | 1}[e.rnd.IntN(5)]
	if len(c.groups) == 1 && told.Eagle == 0 {
		told.Replay = 32 // otherwise its blocks decide, and a lookup finds it in group 0 alone
	}
	told.Rule = []GroupRule{GroupRuleUnknown, GroupRule032, GroupRule027}[e.rnd.IntN(3)]
	e.SetGroups(c.holder.Replica, told)
}

func (e *spansTraffic) names(p tokensPrompt) (names []uint64, contents []prefixhash.Content) {
	contents = prefixhash.AppendContents(nil, p, prefixhash.Blocks{Size: groupBlock}, nil)
	for _, k := range prefixhash.AppendTokens(nil, prefixhash.TokenRoot("other", prefixhash.LoRA{}), p, prefixhash.Blocks{Size: groupBlock}, nil) {
		names = append(names, uint64(k)|1)
	}
	return names, contents
}

// step has one replica store a part of a prompt, remove blocks, or end.
func (e *spansTraffic) step() {
	c := e.caches[e.rnd.IntN(len(e.caches))]
	p := e.prompts[e.rnd.IntN(len(e.prompts))]
	var events []Event
	switch r := e.rnd.IntN(100); {
	case r == 0:
		events = []Event{{Kind: Cleared}}
		clear(c.names)
	case r >= 94: // the settings change, with blocks held
		e.tell(c, []int{32, 64, 72, 128}[e.rnd.IntN(4)])
	case r == 1:
		c.life = e.Begin(c.holder)
		clear(c.names)
	case r < 50:
		events = e.stored(c, p[:(1+e.rnd.IntN(len(p)/groupBlock))*groupBlock])
	default:
		g := e.rnd.IntN(len(c.groups))
		for range e.rnd.IntN(6) {
			if n := len(c.names[g]); n > 0 {
				i := e.rnd.IntN(n)
				if e.rnd.IntN(2) == 0 {
					i = n - 1
				}
				s := groupSpace
				s.Group = g
				events = append(events, Event{Kind: Removed, Scope: s, Hashes: []uint64{c.names[g][i]}})
				c.names[g] = append(c.names[g][:i], c.names[g][i+1:]...)
			}
		}
	}
	must.Get(e.Apply(&Batch{Holder: c.holder, Incarnation: c.life, Events: events}))(e.t)
}

// stored returns the events that a replica sends of a prompt: all of it in full
// attention, a stretch in the other groups.
func (e *spansTraffic) stored(c *hybridCache, p tokensPrompt) (events []Event) {
	names, contents := e.names(p)
	for g, group := range c.groups {
		s := groupSpace
		s.Group, s.BlockSize = g, group.block
		ev := Event{Kind: Stored, Scope: s, Spec: group.spec, Window: group.window, Tokens: len(p)}
		if g == len(c.groups)-1 {
			ev.Hashes, ev.Content = names, contents
		} else {
			ev.Scope.Scheme = "engine"
			stride := group.block / groupBlock
			n := len(names) / stride
			from, to := e.rnd.IntN(n+1), n
			if e.rnd.IntN(3) == 0 {
				to = from + e.rnd.IntN(n-from+1)
			}
			if group.spec == "mamba" && e.rnd.IntN(2) == 0 {
				from = max(from, to-1) // one state
			}
			for k := from; k < to; k++ {
				ev.Hashes = append(ev.Hashes, names[(k+1)*stride-1])
			}
		}
		c.names[g] = append(c.names[g], ev.Hashes...)
		events = append(events, ev)
	}
	return events
}

// compare looks a prompt up in a scope: the hit of every holder equals the rule's.
func (e *spansTraffic) compare(group int) (hits int) {
	p := e.prompts[e.rnd.IntN(len(e.prompts))]
	p = p[:1+e.rnd.IntN(len(p))]
	s := groupSpace
	s.Group = group
	keys := p.AppendChain(nil, Keying{Unit: groupBlock})
	if e.rnd.IntN(8) == 0 {
		keys = keys[:e.rnd.IntN(len(keys)+1)] // the lookup requests the rest from the prompt
	}
	e.FindPrompt(&e.found, s, keys, p)
	got := map[HolderID]Match{}
	for m := range e.found.All() {
		if _, twice := got[m.ID]; twice {
			e.t.Fatalf("two matches of %d", m.ID)
		}
		got[m.ID] = m
	}
	for _, c := range e.caches {
		id := e.ID(c.holder)
		g, ok := e.ExplainGroups(id, s, p)
		m := got[id]
		full := min(int(m.Full), (len(p)-1)/groupBlock*groupBlock)
		if want := int32(g.Hit); ok && (m.Hit != want || m.Blocks != want/groupBlock || want > 0 && (!m.Grouped || full != g.FullOnly)) {
			e.t.Fatalf("%v, %d tokens: %+v, the rule says %d of %d; %s", c.groups, len(p), m, want, g.FullOnly, g.Assumed)
		}
		if m.Hit > 0 && g.Hit < g.FullOnly {
			hits++
		}
	}
	return hits
}

// TestSpansFollowTheRule: after any blocks were stored, removed, evicted and cleared, a
// lookup that reads spans equals vLLM's rule, which is computed block by block.
func TestSpansFollowTheRule(t *testing.T) {
	steps := 4000
	if race.Enabled {
		steps /= 4
	}
	for seed, most := range []int{1 << 20, 1 << 20, 60} { // 60: the index evicts
		t.Run(fmt.Sprint("blocks ", most, " seed ", seed), func(t *testing.T) {
			e := newSpansTraffic(t, uint64(seed), most)
			cut := 0
			for i := range steps {
				e.step()
				cut += e.compare([]int{0, 1, 2}[e.rnd.IntN(3)])
				if i%50 == 0 {
					if i%500 == 0 {
						e.Sweep()
					}
					must.Do(t, e.check())
				}
			}
			if cut < steps/40 {
				t.Errorf("only %d hits were cut by other groups", cut)
			}
		})
	}
}

// allDrop is an index with a holder whose groups all drop a block.
func allDrop(t *testing.T, rule GroupRule) (*Index, Holder) {
	t.Helper()
	x, h := newGroups(t, time.Now), Holder{Replica: "a"}
	x.SetGroups(h.Replica, &GroupSettings{Rule: rule, EagleKnown: true, Eagle: ^uint32(0)})
	return x, h
}

// ruledHit applies events, checks that the rule gives want, and returns the hit of a
// lookup.
func ruledHit(t *testing.T, x *Index, h Holder, p tokensPrompt, events []Event, want int) Match {
	t.Helper()
	must.Get(x.Apply(&Batch{Holder: h, Incarnation: x.Begin(h), Events: events}))(t)
	if m, _ := x.ExplainGroups(x.ID(h), groupSpace, p); m.Hit != want {
		t.Fatalf("the rule says %d", m.Hit)
	}
	return findOne(t, x, h, p)
}

// TestStatesBesideAWindow: a Mamba state may end the hit where a window has all its
// blocks, but not the one more block that it requests first; the window's last end lies
// further on.
func TestStatesBesideAWindow(t *testing.T) {
	x, h := allDrop(t, GroupRule032)
	p := somePrompt(20*groupBlock + 1)
	events := fullAndWindow(p[:20*groupBlock], 0)
	names := events[0].Hashes
	events[0].Window, events[0].Hashes = 33, slices.Concat(names[:3], names[5:9])
	state := Event{Kind: Stored, Scope: events[0].Scope, Spec: "mamba", Hashes: names[2:3], Tokens: events[0].Tokens}
	state.Scope.Group = 2
	if m := ruledHit(t, x, h, p, append(events, state), 3*groupBlock); m.Hit != 3*groupBlock || m.Full != 20*groupBlock {
		t.Errorf("%+v", m)
	}
}
