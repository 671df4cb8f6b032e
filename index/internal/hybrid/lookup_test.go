package hybrid

import (
	"fmt"
	"testing"

	"warmroute/prefixhash"
)

var (
	fullEvent   = seen(1, 16, "full_attention", 0)
	windowEvent = seen(0, 16, "sliding_window", 64)
	fullHome    = Home{Group: 1, Block: 16}
	known       = &Settings{EagleKnown: true}
)

// TestSearchFindsTheHome: the home that a lookup searches depends on the caller's group,
// on the members, and on the reach of the caller's keys.
func TestSearchFindsTheHome(t *testing.T) {
	full0 := []Event{seen(0, 16, "full_attention", 0), seen(1, 16, "sliding_window", 64)}
	full1 := []Event{windowEvent, fullEvent}
	const hits = -1 // behind a group: members are found with their hits
	for name, c := range map[string]struct {
		members [][]Event
		tokens  int
		keys    int // fewer than the prompt has
		there   int // holders that a search of group 0 finds
		want    []int
		answers int
	}{
		"at home":                     {[][]Event{full0}, 100, 0, 1, []int{0, hits}, 0},
		"at home, a key too few":      {[][]Event{full0}, 97, 1, 1, []int{0}, 1},
		"at home, just enough":        {[][]Event{full0}, 96, 1, 1, []int{0, hits}, 0},
		"only elsewhere":              {[][]Event{full1}, 100, 0, 0, []int{0, 1, hits}, 0},
		"here and elsewhere":          {[][]Event{full1}, 100, 0, 1, []int{0}, 1},
		"only elsewhere, a key short": {[][]Event{full1}, 100, 1, 0, []int{0}, 1},
		"two homes":                   {[][]Event{full1, {seen(2, 16, "full_attention", 0), windowEvent}}, 100, 0, 0, []int{0}, 2},
		"at home and elsewhere":       {[][]Event{full0, full1}, 100, 0, 1, []int{0, hits}, 1},
		"blocks of another size":      {[][]Event{{seen(1, 32, "full_attention", 0), seen(0, 32, "sliding_window", 64)}}, 100, 0, 0, []int{0}, 1},
		"hashes that look ahead":      {[][]Event{{windowEvent, {Group: 1, Block: 16, Spec: "full_attention", Ahead: 2}}}, 100, 0, 0, []int{0}, 1},
	} {
		g := newTestModel()
		for i, events := range c.members {
			m, _ := newMember(g, int32(i), known)
			apply(m, Keying{}, events...)
		}
		n := &nodesByHand{found: map[int]int{0: c.there}, answers: map[int32]Answer{}}
		keys := length(c.tokens).AppendChain(nil, Keying{Unit: 16})
		new(Lookup).Find(g, &Query{Prompt: length(c.tokens), Tokens: c.tokens, Asked: Home{Block: 16}, Keys: keys[:len(keys)-c.keys], Linked: true}, n)
		equalAll(t, name, n.searched, c.want)
		equal(t, name+": answers", len(n.answers), c.answers)
	}
	g := newTestModel()
	m, _ := newMember(g, 1, known)
	apply(m, Keying{}, full0...)
	n := &nodesByHand{answers: map[int32]Answer{}}
	new(Lookup).Find(g, &Query{Prompt: length(100), Tokens: 100, Asked: Home{Block: 16}, Keys: make([]prefixhash.Key, 6)}, n)
	equalAll(t, "keys of another chain", n.searched, []int{0})
}

// TestElsewhereAnswers: depths become tokens by the home's blocks. With a block that full
// attention drops, a prompt that ends with a block needs one key more than the caller has.
func TestElsewhereAnswers(t *testing.T) {
	g := newTestModel()
	m, _ := newMember(g, 5, known)
	apply(m, Keying{}, seen(1, 32, "full_attention", 0), seen(0, 32, "sliding_window", 64))
	n := &nodesByHand{depths: map[Home]map[int32]depth{{1, 32, 0}: {5: {held: 3, hit: 2}}}}
	equal(t, "blocks of 32", find(g, n, 200, 16)[5], Answer{Hit: 64, Full: 96})

	g = newTestModel()
	m, _ = newMember(g, 5, &Settings{Eagle: 1, EagleKnown: true})
	apply(m, Keying{}, seen(0, 16, "full_attention", 0), windowEvent.in(1))
	n = &nodesByHand{found: map[int]int{0: 1}, depths: map[Home]map[int32]depth{{0, 16, 0}: {5: {held: 6, hit: 5}}}}
	for tokens, want := range map[int]int{95: 0, 96: 1, 97: 1} {
		keys := length(95).AppendChain(nil, Keying{Unit: 16})
		n.answers = map[int32]Answer{}
		new(Lookup).Find(g, &Query{Prompt: length(tokens), Tokens: tokens, Asked: Home{Block: 16}, Keys: keys, Linked: true}, n)
		equal(t, fmt.Sprint(tokens, " tokens"), len(n.answers), want)
	}
}

func (e Event) in(group int) Event { e.Group = group; return e }

// with returns an event that stores blocks by hash.
func (e Event) with(hashes []uint64) Event { e.Hashes = hashes; return e }

// TestEvaluateRunsTheRule: members whose blocks only vLLM's hashes show hit by the rule. Equal
// ones are answered together.
func TestEvaluateRunsTheRule(t *testing.T) {
	g := newTestModel()
	hashed := Keying{Hash: new(prefixhash.VLLM), Unit: 16}
	for id, ends := range [][]int{to(16, 160), {16, 112, 128, 144, 160}, {16, 112, 128, 160}, {16}, nil, to(16, 160)} {
		m, _ := newMember(g, int32(id), known)
		apply(m, hashed, windowEvent.with(hashesOf(16, ends...)))
	}
	n := &nodesByHand{}
	answers := find(g, n, 200, 16)
	for id, hit := range []int32{160, 160, 16, 16, 0, 160} {
		equal(t, fmt.Sprint("member ", id), answers[int32(id)], Answer{Hit: hit})
	}
	equal(t, "members", len(answers), 6)
	equal(t, "probes of nodes", n.probes, 0)
}

// TestEvaluateReadsDepths: by the rule, too, the blocks of full attention are in the nodes.
// Members of different depths are answered apart.
func TestEvaluateReadsDepths(t *testing.T) {
	g := newTestModel()
	settings := &Settings{Eagle: 1, EagleKnown: true} // the window alone drops a block
	for id := range int32(3) {
		m, _ := newMember(g, id, settings)
		window := windowEvent.with(hashesOf(16, to(16, 160)...))
		window.Keys = true
		apply(m, Keying{}, window, fullEvent)
	}
	n := &nodesByHand{depths: map[Home]map[int32]depth{fullHome: {0: {held: 10}, 1: {held: 4}, 2: {held: 10}}}}
	answers := find(g, n, 200, 16)
	equal(t, "member 0", answers[0], Answer{Hit: 144, Full: 160})
	equal(t, "member 1", answers[1], Answer{Hit: 64, Full: 64})
	equal(t, "member 2", answers[2], answers[0])
	equal(t, "probes of nodes", n.probes, 1)
}

// TestUnknownKindsProveNothing: a lookup does not find a member whose groups have no names, or one
// group that leaves blocks out.
func TestUnknownKindsProveNothing(t *testing.T) {
	for name, events := range map[string][]Event{
		"two groups":        {seen(0, 16, "", 0), seen(1, 16, "", 0)},
		"one with gaps":     {leftOut(0, 16)},
		"one beside a name": {seen(0, 16, "", 0), windowEvent.in(1)},
	} {
		g := newTestModel()
		m, _ := newMember(g, 0, known)
		apply(m, Keying{}, events...)
		n := &nodesByHand{depths: map[Home]map[int32]depth{{0, 16, 0}: {0: {held: 9, hit: 9}}}}
		equal(t, name+": answers", len(find(g, n, 200, 16)), 0)
		equal(t, name+": unknown", m.Unknown(), true)
		d, ok := m.Describe()
		new(Lookup).Explain(&d, m, &Query{Prompt: length(200), Tokens: 200}, n)
		equal(t, name+": hit", fmt.Sprint(ok, d.Hit, d.Trust.Exact), "true 0 false")
	}
	m, _ := newMember(newTestModel(), 0, known)
	equal(t, "before any event", m.Unknown(), false)
	apply(m, Keying{}, seen(0, 16, "", 0))
	equal(t, "one without gaps", m.Unknown(), false)
}

// TestExplain: the blocks of each spec alone, and the spec that ends the hit.
func TestExplain(t *testing.T) {
	g := newTestModel()
	hashed := Keying{Hash: new(prefixhash.VLLM), Unit: 16}
	m, _ := newMember(g, 1, known)
	if _, ok := m.Describe(); ok {
		t.Error("described before any event")
	}
	apply(m, hashed, seen(0, 16, "sliding_window", 64).with(hashesOf(16, to(16, 96)...)), seen(1, 16, "mamba", 0).with(hashesOf(16, 48, 128)))
	explain := func(tokens int) Groups {
		d, ok := m.Describe()
		if !ok {
			t.Fatal("not described")
		}
		new(Lookup).Explain(&d, m, &Query{Prompt: length(tokens), Tokens: tokens}, &nodesByHand{})
		return d
	}
	d := explain(200)
	equal(t, "layout", d.Geometry, "sliding window 16/w64 + Mamba state 16")
	equal(t, "group and block", fmt.Sprint(d.Group, d.Block), "0 16")
	equal(t, "hit", d.Hit, 48)
	equal(t, "group 0 from the start", d.FullOnly, 96)
	equal(t, "the window", fmt.Sprint(d.Specs[0]), fmt.Sprint(GroupHeld{[]int{0}, "sliding window", 16, 64, 96, true}))
	equal(t, "the states", fmt.Sprint(d.Specs[1]), fmt.Sprint(GroupHeld{[]int{1}, "Mamba state", 16, 0, 128, false}))
	equal(t, "of a whole block more", explain(97).FullOnly, 96)
	equal(t, "of a token less", explain(96).FullOnly, 80)
	short := explain(49)
	equal(t, "all but the last token", fmt.Sprint(short.Hit, short.Specs[0].Cuts, short.Specs[1].Cuts), "48 false false")

	later, _ := newMember(g, 2, known)
	apply(later, hashed, seen(0, 16, "mamba", 0), seen(1, 16, "full_attention", 0), seen(2, 16, "mla_attention", 0))
	d, _ = later.Describe()
	equal(t, "two kinds of full attention", fmt.Sprint(d.Group, d.Block), "0 16")
	plain, _ := newMember(g, 3, nil)
	apply(plain, Keying{}, fullEvent.in(0))
	d, _ = plain.Describe()
	equal(t, "full attention alone", fmt.Sprintln(d.Geometry, d.Trust.Exact, d.Group), "full attention 16 false 0\n")
}

// TestADropIsFoundByDepth: the shard finds the hit of a member that drops a block for a draft
// model, from the settings on.
func TestADropIsFoundByDepth(t *testing.T) {
	g := newTestModel()
	m, _ := newMember(g, 1, nil)
	apply(m, Keying{}, fullEvent.in(0))
	n := &nodesByHand{depths: map[Home]map[int32]depth{{0, 16, 0}: {1: {held: 5}}}}
	m.Configure(&Settings{EagleKnown: true, Eagle: 1})
	equal(t, "assumed", m.plan.Load().assumed, Assumed{Eagle: 1})
	equal(t, "answer", find(g, n, 100, 16)[1], Answer{})
	if hit, ok := m.Hit(Home{Block: 16}, 5, 100); hit != 4 || !ok {
		t.Errorf("hits %d, %v", hit, ok)
	}
	for _, home := range []Home{{Block: 32}, {Group: 1, Block: 16}} {
		if _, ok := m.Hit(home, 5, 100); ok || m.HasOthers(home) {
			t.Errorf("%v is its home", home)
		}
	}
}

// TestOthersHaveAHome: other groups along a home decide the hit of a member with a window.
func TestOthersHaveAHome(t *testing.T) {
	m, _ := newMember(newTestModel(), 0, known)
	equal(t, "before any event", m.HasOthers(fullHome), false)
	apply(m, Keying{}, windowEvent, fullEvent)
	equal(t, "at home", m.HasOthers(fullHome), true)
	equal(t, "elsewhere", m.HasOthers(Home{Block: 16}), false)
	if _, ok := m.Hit(fullHome, 5, 100); ok {
		t.Error("depth alone decides the hit")
	}
	plain, _ := newMember(newTestModel(), 0, &Settings{EagleKnown: true, Eagle: 1})
	apply(plain, Keying{}, fullEvent)
	equal(t, "of full attention alone", plain.HasOthers(fullHome), false)
	equal(t, "windows keep a part", m.Partial(), true)
	equal(t, "full attention keeps all", plain.Partial(), false)
}
