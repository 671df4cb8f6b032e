package hybrid

import (
	"strings"
	"testing"

	"warmroute/prefixhash"
)

func seen(group, block int, spec string, window int) Event {
	return Event{Group: group, Block: block, Spec: spec, Window: window}
}

// leftOut is an event of a group that leaves a block out.
func leftOut(group, block int) Event {
	return Event{Group: group, Block: block, Tokens: 2 * block, Hashes: []uint64{1}}
}

// TestEventsDescribeTheLayout: which layout follows from events and settings.
func TestEventsDescribeTheLayout(t *testing.T) {
	named := []Event{seen(0, 16, "full_attention", 0), seen(1, 16, "sliding_window", 64)}
	unnamed := []Event{seen(0, 16, "", 0), seen(1, 16, "", 0)}
	for name, c := range map[string]struct {
		settings Settings
		unit     int // of vLLM's hashes
		events   []Event
		want     string
		hashes   int // the layout's unit
		known    bool
		why      string
	}{
		"named":                                {events: named, want: "full attention 16 + sliding window 16/w64", hashes: 16, known: true},
		"nothing is left out of the only one":  {events: unnamed[:1], want: "full attention 16", hashes: 16, known: true},
		"something is left out of it":          {events: []Event{leftOut(0, 16)}, want: "unknown 16", hashes: 16},
		"a shorter block shows the unit":       {events: []Event{seen(0, 64, "full_attention", 0), seen(1, 64, "mamba", 0), seen(1, 16, "mamba", 0)}, want: "full attention 64 + Mamba state 64", hashes: 16, known: true},
		"so it does before longer ones":        {events: []Event{seen(0, 16, "full_attention", 0), seen(0, 64, "full_attention", 0), seen(1, 64, "mamba", 0)}, want: "full attention 64 + Mamba state 64", hashes: 16, known: true},
		"vLLM's hashes have a unit":            {unit: 32, events: []Event{seen(0, 64, "full_attention", 0), seen(1, 64, "mamba", 0), seen(1, 16, "mamba", 0)}, want: "full attention 64 + Mamba state 64", hashes: 32, known: true},
		"a unit is configured":                 {settings: Settings{Unit: 8}, unit: 32, events: []Event{seen(0, 64, "full_attention", 0), seen(1, 64, "mamba", 0)}, want: "full attention 64 + Mamba state 64", hashes: 8, known: true},
		"a window is repeated without length":  {events: append(named[:2:2], seen(1, 16, "sliding_window", 0)), want: "full attention 16 + sliding window 16/w64", hashes: 16, known: true},
		"of two nothing is named":              {events: unnamed, want: "unknown 16 + unknown 16", hashes: 16, why: "do not name the kinds"},
		"one of two is named":                  {events: []Event{named[0], unnamed[1]}, want: "full attention 16 + unknown 16", hashes: 16, why: "do not name the kinds"},
		"only partial blocks yet":              {settings: Settings{Unit: 16, Block: 64}, events: []Event{seen(0, 16, "full_attention", 0), seen(1, 16, "mamba", 0), seen(2, 16, "sliding_window", 64)}, want: "full attention 64 + Mamba state 64 + sliding window 16/w64", hashes: 16, known: true},
		"the block is no multiple of the unit": {settings: Settings{Unit: 16, Block: 72}, events: []Event{seen(0, 16, "full_attention", 0)}, want: "full attention 16", hashes: 16, known: true},
		"the block is the unit":                {settings: Settings{Unit: 16, Block: 16}, events: []Event{seen(0, 16, "full_attention", 0)}, want: "full attention 16", hashes: 16, known: true},
		"the block has been seen":              {settings: Settings{Unit: 16, Block: 64}, events: []Event{seen(0, 32, "full_attention", 0)}, want: "full attention 32", hashes: 32, known: true},
	} {
		m, _ := newMember(newTestModel(), 1, &c.settings)
		apply(m, Keying{Unit: c.unit}, c.events...)
		p := m.plan.Load()
		trust, _ := m.Trust()
		if p.String() != c.want || p.layout.Unit != c.hashes || p.layout.Known != c.known || !strings.Contains(trust.Why, c.why) {
			t.Errorf("%s: %v, unit %d, known %v, %q", name, p, p.layout.Unit, p.layout.Known, trust.Why)
		}
	}
}

// TestEventsShowNewsOnce: an event that has nothing new does not change the layout.
func TestEventsShowNewsOnce(t *testing.T) {
	m, _ := newMember(newTestModel(), 1, nil)
	for i, c := range []struct {
		e    Event
		news bool
	}{
		{seen(0, 16, "", 0), true}, {seen(0, 16, "", 0), false}, {seen(0, 32, "", 0), true}, {seen(0, 16, "", 0), false},
		{seen(0, 8, "", 0), true}, {seen(0, 16, "mamba", 0), true}, {seen(0, 16, "mamba", 0), false}, {seen(0, 16, "", 64), true},
		{Event{Group: 0, Block: 16, Tokens: 16, Hashes: []uint64{1}}, false}, {Event{Group: 0, Block: 16, Tokens: 17, Hashes: []uint64{1}}, true},
		{Event{Group: 0, Block: 16, Ahead: 2}, true}, {Event{Group: 0, Block: 16, Ahead: 2}, false}, {Event{Group: 0, Block: 16}, false},
		{Event{Group: 31, Block: 16}, true}, {Event{Group: 32, Block: 16}, true}, {Event{Group: 33, Block: 16}, false}, {Event{Group: -1, Block: 16}, false}, {Event{Group: 1}, false},
	} {
		if got := m.Observe(&c.e); got != c.news {
			t.Errorf("event %d has news: %v", i, got)
		}
	}
	equal(t, "new keying", m.ObserveKeying(Keying{Unit: 16}), true)
	equal(t, "the same keying", m.ObserveKeying(Keying{Unit: 16}), false)
}

// TestTrustHasAReason: the first reason why a prediction may be wrong.
func TestTrustHasAReason(t *testing.T) {
	hashed := Keying{Hash: new(prefixhash.VLLM), Unit: 16}
	chunks := seen(1, 16, "chunked_local_attention", 0)
	ahead := windowEvent
	ahead.Ahead = 2
	for name, c := range map[string]struct {
		settings Settings
		keying   Keying
		events   []Event
		why      string
	}{
		"exact":                    {Settings{EagleKnown: true}, Keying{}, []Event{windowEvent, fullEvent}, ""},
		"exact by hash":            {Settings{EagleKnown: true}, hashed, []Event{windowEvent}, ""},
		"drops are open":           {Settings{}, Keying{}, []Event{windowEvent, fullEvent}, "set draft_groups"},
		"the kind is not named":    {Settings{EagleKnown: true}, Keying{}, []Event{seen(0, 16, "", 0)}, "do not name the kind"},
		"hashes are not known":     {Settings{EagleKnown: true}, Keying{}, []Event{windowEvent}, "set hash_seed"},
		"hashes look ahead":        {Settings{EagleKnown: true}, hashed, []Event{ahead}, "disable_lookahead_block_hashes"},
		"tokens look ahead":        {Settings{}, Keying{}, []Event{ahead, fullEvent}, ""},
		"the chunk is open":        {Settings{EagleKnown: true}, Keying{}, []Event{seen(0, 16, "full_attention", 0), chunks}, "the chunk size"},
		"the chunk is configured":  {Settings{EagleKnown: true, Chunk: 64}, Keying{}, []Event{seen(0, 16, "full_attention", 0), chunks}, ""},
		"a limit":                  {Settings{EagleKnown: true, Limit: "a limit"}, Keying{}, []Event{windowEvent, fullEvent}, "a limit"},
		"no limit of plain caches": {Settings{EagleKnown: true, Limit: "a limit"}, Keying{}, []Event{fullEvent}, ""},
	} {
		m, _ := newMember(newTestModel(), 1, &c.settings)
		apply(m, c.keying, c.events...)
		trust, ok := m.Trust()
		if !ok || trust.Exact != (c.why == "") || !strings.Contains(trust.Why, c.why) {
			t.Errorf("%s: %+v", name, trust)
		}
		equal(t, name+": word", trust.String(), map[bool]string{true: "exact", false: "inexact"}[trust.Exact])
	}
	equal(t, "chunk", (&Settings{Chunk: 64}).adjust(Group{Block: 16, Kind: Chunked}).Chunk, 64)
	equal(t, "a window has no chunk", (&Settings{Chunk: 64}).adjust(Group{Block: 16, Kind: Window}).Chunk, 0)
}

// TestContentsLinkKeys: the keys of a prompt's blocks follow from the contents of the events
// that leave none out, from the model's root or the parent's key on.
func TestContentsLinkKeys(t *testing.T) {
	m, _ := newMember(newTestModel(), 1, known)
	apply(m, Keying{}, windowEvent, fullEvent)
	contents := []prefixhash.Content{5, 6, 7}
	root := prefixhash.TokenRoot("m", prefixhash.LoRA{})
	want := prefixhash.AppendLinks(nil, root, contents)
	hashes := hashesOf(16, 16, 32, 48)
	store := func(e Event) { m.Stored(&e) }
	store(Event{Group: 1, Block: 16, Hashes: hashes[:1]})
	equal(t, "keys without contents", len(m.held.keys), 0)
	store(Event{Group: 1, Block: 16, HasParent: true, Parent: hashes[0], Hashes: hashes[1:2], Contents: contents[1:2]})
	equal(t, "keys behind an unknown parent", len(m.held.keys), 0)
	store(Event{Group: 1, Block: 8, Hashes: hashes[:1], Contents: contents[:1]})
	equal(t, "keys of other blocks", len(m.held.keys), 0)
	store(Event{Group: 1, Block: 16, Hashes: hashes[:2], Contents: contents[:2]})
	store(Event{Group: 1, Block: 16, HasParent: true, Parent: hashes[1], Hashes: hashes[2:], Contents: contents[2:]})
	for i, hash := range hashes {
		equal(t, "key", m.held.keys[hash], uint64(want[i]))
	}
}

// TestTheFewestHits: each setting that is not given has its worst value.
func TestTheFewestHits(t *testing.T) {
	mla := Group{Spec: "mla_attention", Kind: Full, Block: 16}
	for name, c := range map[string]struct {
		settings Settings
		groups   []Group
		want     Assumed
	}{
		"nothing is given":      {Settings{}, []Group{fullOf16}, Assumed{Eagle: ^uint32(0)}},
		"drops are given":       {Settings{EagleKnown: true, Eagle: 1}, []Group{fullOf16, windowOf16}, Assumed{Eagle: 1}},
		"a number is left out":  {Settings{EagleKnown: true}, []Group{fullOf16, windowOf16.at(2)}, Assumed{Replay: maxAlign}},
		"the kind that replays": {Settings{EagleKnown: true}, []Group{mla}, Assumed{Replay: maxAlign}},
		"it is given":           {Settings{EagleKnown: true, Replay: 64}, []Group{mla}, Assumed{Replay: 64}},
		"it is given that none": {Settings{EagleKnown: true, ReplayKnown: true}, []Group{mla}, Assumed{}},
	} {
		equal(t, name, c.settings.least(NewLayout(Rule032, c.groups, 0)), c.want)
	}
}
