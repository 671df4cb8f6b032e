package hybrid

import (
	"fmt"
	"testing"

	"warmroute/index/internal/hashtable"
	"warmroute/prefixhash"
)

// TestPlans: how each layout is joined with prompts, and who finds its hits.
func TestPlans(t *testing.T) {
	hashed := Keying{Hash: new(prefixhash.VLLM), Unit: 16}
	chunk := func(n int) Group { return Group{Index: 1, Kind: Chunked, Spec: "c", Block: 16, Chunk: n} }
	unknown := Group{Index: 1, Block: 16}
	for name, c := range map[string]struct {
		rule   Rule
		groups []Group
		unit   int
		a      Assumed
		keying Keying
		home   Home
		along  bool // the shard finds the hits
		last   bool // up to the prompt's last token
	}{
		"full attention":            {Rule032, []Group{fullOf16}, 0, Assumed{}, Keying{Unit: 16}, Home{0, 16, 0}, true, false},
		"it drops a block":          {Rule032, []Group{fullOf16}, 0, Assumed{Eagle: 1, Replay: 32}, Keying{Unit: 16}, Home{0, 16, 0}, true, false},
		"a window":                  {Rule032, []Group{fullOf16, windowOf16}, 0, Assumed{}, Keying{Unit: 16}, Home{0, 16, 0}, true, false},
		"a window of one token":     {Rule032, []Group{fullOf16, {Index: 1, Kind: Window, Spec: "w", Block: 16, Window: 1}}, 0, Assumed{}, Keying{Unit: 16}, Home{0, 16, 0}, true, false},
		"a window of longer blocks": {Rule032, []Group{fullOf16, windowOf64}, 0, Assumed{}, Keying{Unit: 16}, Home{0, 16, 0}, true, false},
		"full drops":                {Rule032, []Group{fullOf16, windowOf16}, 0, Assumed{Eagle: 1, Replay: 32}, Keying{Unit: 16}, Home{0, 16, 0}, true, true},
		"full drops, 0.27":          {Rule027, []Group{fullOf16, windowOf16}, 0, Assumed{Eagle: 1}, Keying{Unit: 16}, Home{0, 16, 0}, true, false},
		"all drop":                  {Rule032, []Group{fullOf16, windowOf16}, 0, Assumed{Eagle: 3}, Keying{Unit: 16}, Home{0, 16, 0}, true, true},
		"all drop, longer blocks":   {Rule032, []Group{fullOf16, windowOf64}, 0, Assumed{Eagle: 3}, Keying{Unit: 16}, Home{0, 16, 0}, false, false},
		"the window alone drops":    {Rule032, []Group{fullOf16, windowOf16}, 0, Assumed{Eagle: 2}, Keying{Unit: 16}, Home{0, 16, 0}, false, false},
		"two others, one drops":     {Rule032, []Group{fullOf16, windowOf16, mambaOf16}, 0, Assumed{Eagle: 3}, Keying{Unit: 16}, Home{0, 16, 0}, true, true},
		"states keep their blocks":  {Rule032, []Group{fullOf16, mambaOf16.at(1)}, 0, Assumed{Eagle: 3}, Keying{Unit: 16}, Home{0, 16, 0}, true, true},
		"chunks":                    {Rule032, []Group{fullOf16, chunk(64)}, 0, Assumed{}, Keying{Unit: 16}, Home{0, 16, 0}, true, false},
		"chunks unknown":            {Rule032, []Group{fullOf16, chunk(0)}, 0, Assumed{}, Keying{Unit: 16}, Home{0, 16, 0}, true, false},
		"chunks of no whole blocks": {Rule032, []Group{fullOf16, chunk(72)}, 0, Assumed{}, Keying{Unit: 16}, Home{0, 16, 0}, true, false},
		"chunks beside longer":      {Rule032, []Group{fullOf16, chunk(64), windowOf64.at(2)}, 0, Assumed{}, Keying{Unit: 16}, Home{0, 16, 0}, true, false},
		"windows alone":             {Rule032, []Group{windowOf16}, 0, Assumed{}, hashed, Home{}, false, false},
		"coarse full attention":     {Rule032, []Group{fullOf64, windowOf16}, 0, Assumed{}, hashed, Home{}, false, false},
		"an unknown kind":           {Rule032, []Group{fullOf16, unknown}, 0, Assumed{}, Keying{Unit: 16}, Home{0, 16, 0}, false, false},
	} {
		given := hashed
		p := newPlan(NewLayout(c.rule, c.groups, c.unit), c.a, given, 0)
		p.complete()
		if p.keying != c.keying || p.home != c.home || p.along != c.along || p.lastToken != c.last {
			t.Errorf("%s: keying %v, home %v, along %v, last token %v", name, p.keying, p.home, p.along, p.lastToken)
		}
	}
	for _, groups := range [][]Group{{windowOf16}, {fullOf64, windowOf16}} { // rows by hash and by key are apart
		l := NewLayout(Rule032, groups, 0)
		byHash, byKey := newPlan(l, Assumed{}, hashed, 0), newPlan(l, Assumed{}, Keying{}, 0)
		byHash.complete()
		byKey.complete()
		s := &l.Specs[0]
		equal(t, "a row by key", byKey.rows[0], (uint64(s.Mask)|uint64(s.Block)<<32)*hashtable.Golden)
		equal(t, "a row by hash is another", byHash.rows[0] != byKey.rows[0], true)
	}
	ahead := newPlan(NewLayout(Rule032, []Group{fullOf16}, 0), Assumed{}, Keying{}, 2)
	equal(t, "keys that look ahead", ahead.keying, Keying{Unit: 16, Ahead: 2})
	equal(t, "their home", ahead.home, Home{0, 16, 2})
}

// TestPlansInWords: a person reads groups, blocks and windows.
func TestPlansInWords(t *testing.T) {
	for want, groups := range map[string][]Group{
		"full attention 16":                             {fullOf16},
		"full attention 64 + 2×Mamba state 64":          {fullOf64, mambaOf64, mambaOf64.at(3)},
		"full attention 16 + sliding window 16/w64":     {fullOf16, windowOf16},
		"2×full attention 16 + 3×sliding window 64/w64": {fullOf16, fullOf16.at(4), windowOf64, windowOf64.at(2), windowOf64.at(3)},
	} {
		if got := (&Plan{layout: NewLayout(Rule032, groups, 0)}).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestNodesTakeFullAttention: which groups' blocks go into the index's nodes.
func TestNodesTakeFullAttention(t *testing.T) {
	p := newPlan(NewLayout(Rule032, []Group{fullOf16, windowOf16}, 0), Assumed{}, Keying{}, 0)
	for group, want := range []bool{true, false, true} {
		equal(t, fmt.Sprint("group ", group), p.takes(group), want)
	}
	equal(t, "full attention", p.inNodes(0), true)
	equal(t, "the window", p.inNodes(1), false)
	m, _ := newMember(newTestModel(), 1, known)
	short := seen(0, 16, "full_attention", 0)
	equal(t, "nothing is known yet", m.InNodes(&short), true)
	apply(m, Keying{}, seen(0, 64, "full_attention", 0), seen(1, 64, "mamba", 0))
	equal(t, "the end of a prompt", m.InNodes(&short), false)
	long := seen(0, 64, "", 0)
	equal(t, "a whole block", m.InNodes(&long), true)
	state := seen(1, 64, "", 0)
	equal(t, "a state", m.InNodes(&state), false)
}
