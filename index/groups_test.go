package index

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
	"warmroute/render/testkit/race"
)

// tokensPrompt is a prompt of token ids.
type tokensPrompt []uint32

func (p tokensPrompt) Tokens() int { return len(p) }

func (p tokensPrompt) AppendChain(dst []prefixhash.Key, c Keying) []prefixhash.Key {
	if c.Hash != nil {
		return dst
	}
	return prefixhash.AppendTokens(dst, prefixhash.TokenRoot("m", prefixhash.LoRA{}), p, prefixhash.Blocks{Size: c.Unit, Ahead: c.Ahead}, nil)
}

func somePrompt(n int) tokensPrompt {
	p := make(tokensPrompt, n)
	for i := range p {
		p[i] = uint32(i*7 + 1)
	}
	return p
}

const groupBlock = 16

var groupSpace = Scope{Model: "m", Scheme: SchemeTokens, BlockSize: groupBlock}

// fullAndWindow is a step that stores a prompt in two groups, full attention last:
// all of it there, and the blocks from keep on in a window of 64 tokens.
func fullAndWindow(p tokensPrompt, keep int) []Event {
	contents := prefixhash.AppendContents(nil, p, prefixhash.Blocks{Size: groupBlock}, nil)
	names := make([]uint64, len(contents))
	for i, c := range contents {
		names[i] = uint64(c) | 1
	}
	window, full := groupSpace, groupSpace
	window.Scheme = "engine" // as an event is read that leaves blocks out
	full.Group = 1
	return []Event{
		{Kind: Stored, Scope: window, Spec: "sliding_window", Window: 64, Hashes: names[keep:], Tokens: len(names) * groupBlock},
		{Kind: Stored, Scope: full, Spec: "full_attention", Hashes: names, Content: contents, Tokens: len(names) * groupBlock},
	}
}

func findOne(t testing.TB, x *Index, h Holder, p tokensPrompt) Match {
	t.Helper()
	keys := p.AppendChain(nil, Keying{Unit: groupBlock})
	var f Found
	x.FindPrompt(&f, groupSpace, keys[:(len(p)-1)/groupBlock], p)
	for m := range f.All() {
		if m.ID == x.ID(h) {
			return m
		}
	}
	return Match{}
}

func newGroups(t testing.TB, now func() time.Time) *Index {
	t.Helper()
	x := New(Options{Now: now})
	t.Cleanup(x.Close)
	return x
}

// TestGroupsSnapshot: a snapshot leaves out the groups that it has no form for, so that
// the blocks of full attention do not count as hits.
func TestGroupsSnapshot(t *testing.T) {
	x := newGroups(t, time.Now)
	hybrid, dense := Holder{Replica: "hybrid"}, Holder{Replica: "dense"}
	p := somePrompt(8 * groupBlock)
	must.Get(x.Apply(&Batch{Holder: hybrid, Incarnation: x.Begin(hybrid), Events: fullAndWindow(p, 7)}))(t)
	one := fullAndWindow(p, 0)[1]
	one.Scope.Group = 0
	must.Get(x.Apply(&Batch{Holder: dense, Incarnation: x.Begin(dense), Events: []Event{one}}))(t)
	seen := map[Holder]int{}
	for e := range x.Snapshot() {
		seen[e.Holder]++
	}
	if seen[hybrid] != 0 || seen[dense] == 0 || !x.Grouped(hybrid) || x.Grouped(dense) {
		t.Errorf("copies %v, grouped %v and %v", seen, x.Grouped(hybrid), x.Grouped(dense))
	}
}

// TestGroupsConcurrently: lookups run during changes; each sees a state that existed, and
// nothing when all is gone.
func TestGroupsConcurrently(t *testing.T) {
	x := newGroups(t, time.Now)
	p := somePrompt(32*groupBlock + 1)
	events := fullAndWindow(p[:32*groupBlock], 28)
	var changing, looking sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		looking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				keys := p.AppendChain(nil, Keying{Unit: groupBlock})
				var f Found
				x.FindPrompt(&f, groupSpace, keys, p)
				for m := range f.All() {
					if m.Grouped && m.Hit != 0 && m.Hit != 32*groupBlock {
						t.Errorf("hits %d", m.Hit)
						return
					}
				}
			}
		})
	}
	for i := range 3 {
		changing.Go(func() {
			h := Holder{Replica: fmt.Sprint("r", i)}
			for round := range 300 {
				if _, err := x.Apply(&Batch{Holder: h, Incarnation: x.Begin(h), Events: events}); err != nil {
					t.Error(err)
				}
				if round%3 == 0 {
					x.Remove(h.Replica)
				}
			}
			x.Remove(h.Replica)
		})
	}
	changing.Wait()
	close(stop)
	looking.Wait()
	if m := findOne(t, x, Holder{Replica: "r0"}, p); m.Hit != 0 {
		t.Errorf("removed, but hits %d", m.Hit)
	}
}

// TestGroupsAllocate: a lookup that meets holders with groups allocates nothing.
func TestGroupsAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	x := newGroups(t, time.Now)
	p := somePrompt(64*groupBlock + 1)
	for i := range 8 {
		h := Holder{Replica: fmt.Sprint("r", i)}
		must.Get(x.Apply(&Batch{Holder: h, Incarnation: x.Begin(h), Events: fullAndWindow(p[:(64-i)*groupBlock], 50-i)}))(t)
	}
	keys := p.AppendChain(nil, Keying{Unit: groupBlock})
	var f Found
	var prompt Prompt = p
	n := 0
	look := func() {
		x.FindPrompt(&f, groupSpace, keys, prompt)
		for m := range f.All() {
			n += int(m.Hit)
		}
	}
	for _, drops := range []uint32{0, 1, 2, 3} {
		for i := range 8 {
			x.SetGroups(fmt.Sprint("r", i), &GroupSettings{Eagle: drops, EagleKnown: true})
		}
		n = 0
		look()
		if n == 0 {
			t.Fatal("nothing hits")
		}
		if got := testing.AllocsPerRun(100, look); got > 0 {
			t.Errorf("groups %b drop a block: %v allocations per lookup", drops, got)
		}
	}
}

// TestHitsWithLeases: a holder of full attention alone that drops a block hits one
// less than it holds, and will hit one less than its prompts in flight have.
func TestHitsWithLeases(t *testing.T) {
	x := newGroups(t, time.Now)
	p := somePrompt(8*groupBlock + 1)
	keys := p.AppendChain(nil, Keying{Unit: groupBlock})
	full := func(blocks int) []Event {
		e := fullAndWindow(p[:blocks*groupBlock], 0)[1:]
		e[0].Scope.Group = 0
		return e
	}
	s := groupSpace
	s.Group = 0
	for i, held := range []int{0, 5, 8} {
		h := Holder{Replica: fmt.Sprint("r", i)}
		x.SetGroups(h.Replica, &GroupSettings{Eagle: 1, EagleKnown: true})
		life := x.Begin(h)
		must.Get(x.Apply(&Batch{Holder: h, Incarnation: life, Events: full(max(1, held))}))(t)
		if held == 0 {
			must.Get(x.Apply(&Batch{Holder: h, Incarnation: life, Events: []Event{{Kind: Cleared}}}))(t)
		}
		lend(t, x, s, h, keys[:6], time.Now().Add(time.Minute))
	}
	var f Found
	x.FindPrompt(&f, s, keys, p)
	seen := 0
	for m := range f.All() {
		hit := []int32{5, 5, 7}[m.ID]
		if m.Blocks != hit || m.Hit != hit*groupBlock || m.Full != []int32{6, 6, 8}[m.ID]*groupBlock || !m.Grouped {
			t.Errorf("%+v, want %d hit", m, hit)
		}
		seen++
	}
	if seen != 3 {
		t.Errorf("%d matches", seen)
	}
}

// TestGroupsTold: configured settings count at once.
func TestGroupsTold(t *testing.T) {
	x := newGroups(t, time.Now)
	h := Holder{Replica: "a"}
	p := somePrompt(32*groupBlock + 1)
	events := fullAndWindow(p[:32*groupBlock], 0)
	must.Get(x.Apply(&Batch{Holder: h, Incarnation: x.Begin(h), Events: events}))(t)
	if trust, _ := x.Trust(x.ID(h), "", "m"); trust.Exact || trust.Why == "" {
		t.Errorf("nothing is told: %+v", trust)
	}
	told := &GroupSettings{EagleKnown: true}
	x.SetGroups(h.Replica, told)
	if m := findOne(t, x, h, p); m.Hit != 32*groupBlock {
		t.Errorf("told: %+v", m)
	}
	if trust, _ := x.Trust(x.ID(h), "", "m"); !trust.Exact {
		t.Errorf("told: %+v", trust)
	}
	limited := *told
	limited.Limit = "a limit"
	x.SetGroups(h.Replica, &limited)
	if trust, _ := x.Trust(x.ID(h), "", "m"); trust.Exact || trust.Why != "a limit" {
		t.Errorf("told with a limit: %+v", trust)
	}
	dense := Holder{Replica: "dense"}
	x.SetGroups(dense.Replica, &GroupSettings{EagleKnown: true, Limit: "a limit"})
	must.Get(x.Apply(&Batch{Holder: dense, Incarnation: x.Begin(dense), Events: fullAndWindow(p[:groupBlock], 0)[1:]}))(t)
	if trust, ok := x.Trust(x.ID(dense), "", "m"); ok && !trust.Exact {
		t.Errorf("one group of full attention: %+v", trust)
	}
}

func TestGroupRuleOf(t *testing.T) {
	for version, want := range map[string]GroupRule{
		"0.21.0": GroupRuleUnknown, "0.27.1": GroupRule027, "0.31.0+cpu": GroupRule027, "0.32.0": GroupRule032, "0.33.0": GroupRule032,
		"0.24.0": GroupRuleUnknown, "1.27.0": GroupRuleUnknown, "": GroupRuleUnknown, "main": GroupRuleUnknown,
	} {
		if got := GroupRuleOf(prefixhash.ParseRelease(version)); got != want {
			t.Errorf("%q: %v, want %v", version, got, want)
		}
	}
}
