package kvevents

import (
	"testing"

	"warmroute/index"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// hashing is a configuration of vLLM's own hash.
func hashing(t *testing.T, a prefixhash.Algorithm, g prefixhash.Generation, seed string) *prefixhash.VLLM {
	t.Helper()
	return must.Get(prefixhash.NewVLLM(prefixhash.VLLMOptions{Algorithm: a, Generation: g, Seed: &seed}))(t)
}

// beginning is the event of a prompt's first blocks, hashed with v in such units.
func beginning(v *prefixhash.VLLM, first uint32, blocks, size, unit int, extras ...prefixhash.ExtraKey) Event {
	e := Event{Kind: index.Stored, BlockSize: size}
	for i := range blocks * size {
		e.Tokens = append(e.Tokens, first+uint32(i))
	}
	if v.Generation() == prefixhash.Tagged {
		e.Spec = "full_attention"
	}
	if extras != nil {
		e.Extras = [][]prefixhash.ExtraKey{extras}
	}
	root, _ := v.Root()
	var r prefixhash.Request
	if len(extras) > 0 {
		r.CacheSalt = &extras[0].ID
	}
	digests := v.AppendDigests(nil, prefixhash.Position{Parent: root}, e.Tokens, unit, r)
	for i := range blocks {
		e.Hashes = append(e.Hashes, uint64(digests[(i+1)*size/unit-1].Key()))
	}
	return e
}

func (c *chainFinder) see(e ...Event) index.Keying { return c.observe(&Batch{Events: e}) }

func wantChain(t *testing.T, what string, got index.Keying, v *prefixhash.VLLM, unit int) {
	t.Helper()
	switch {
	case v == nil && got.Hash != nil:
		t.Errorf("%s: chain %v in units of %d, want none", what, got.Hash, got.Unit)
	case v != nil && (got.Hash != shared(v) || got.Unit != unit):
		t.Errorf("%s: chain %v in units of %d, want %v and %d", what, got.Hash, got.Unit, v, unit)
	}
}

// TestChainIsFound by the hash of a prompt's first block, whichever candidate and
// whichever unit made it, and followed when the publisher changes both.
func TestChainIsFound(t *testing.T) {
	all := []*prefixhash.VLLM{
		hashing(t, prefixhash.SHA256CBOR, prefixhash.Untagged, "0"), hashing(t, prefixhash.XXHash, prefixhash.Tagged, "0"),
		hashing(t, prefixhash.SHA256CBOR, prefixhash.Tagged, "7"),
	}
	for _, v := range all {
		for _, unit := range []int{16, 8, 4, 1} {
			c := chainFinder{candidates: all}
			wantChain(t, "one block", c.see(beginning(v, 1, 1, 16, unit)), v, unit)
			c = chainFinder{candidates: all, unit: unit}
			wantChain(t, "several, the unit told", c.see(beginning(v, 1, 3, 16, unit)), v, unit)
			c = chainFinder{candidates: all, unit: 2}
			wantChain(t, "another unit told", c.see(beginning(v, 1, 1, 16, unit)), nil, 0)
		}
	}
	foreign := hashing(t, prefixhash.SHA256CBOR, prefixhash.Tagged, "other")
	c := chainFinder{candidates: all}
	wantChain(t, "a seed nobody named", c.see(beginning(foreign, 1, 1, 16, 16)), nil, 0)
	wantChain(t, "then one that is named", c.see(beginning(all[2], 2, 1, 16, 16)), all[2], 16)
	c.forget()
	wantChain(t, "a new publisher", c.see(beginning(all[0], 3, 1, 16, 8)), all[0], 8)
	none := chainFinder{}
	wantChain(t, "no candidates", none.see(beginning(all[0], 1, 1, 16, 16)), nil, 0)
}

// TestWhatShowsNoChain: only the first block of a prompt, with all its tokens and
// with nothing in its hash but a salt.
func TestWhatShowsNoChain(t *testing.T) {
	v := hashing(t, prefixhash.SHA256CBOR, prefixhash.Untagged, "0")
	for name, change := range map[string]func(*Event){
		"another block":         func(e *Event) { e.HasParent = true },
		"a removal":             func(e *Event) { e.Kind = index.Removed },
		"no hashes":             func(e *Event) { e.Hashes, e.Tokens = nil, nil },
		"what cannot be keyed":  func(e *Event) { e.Unkeyed = true },
		"an adapter":            func(e *Event) { e.LoRA.Set = true },
		"an adapter's number":   func(e *Event) { e.HasID = true },
		"no block size":         func(e *Event) { e.BlockSize, e.Tokens = 0, nil },
		"a block size too many": func(e *Event) { e.BlockSize = maxFirst + 1 },
		"a token too few":       func(e *Event) { e.Tokens = e.Tokens[1:] },
		"an image":              func(e *Event) { e.Extras = [][]prefixhash.ExtraKey{{{ID: "x", HasOffset: true}}} },
		"two extra keys":        func(e *Event) { e.Extras = [][]prefixhash.ExtraKey{{{ID: "x"}, {ID: "y"}}} },
	} {
		e := beginning(v, 1, 2, 16, 16)
		change(&e)
		c := chainFinder{candidates: []*prefixhash.VLLM{v}}
		wantChain(t, name, c.see(e), nil, 0)
		if c.seen != 0 {
			t.Errorf("%s: counts as a first block", name)
		}
	}
	c := chainFinder{candidates: []*prefixhash.VLLM{v}}
	wantChain(t, "the largest block", c.see(beginning(v, 1, 1, maxFirst, maxFirst)), v, maxFirst)
	c = chainFinder{candidates: []*prefixhash.VLLM{v}}
	salted := prefixhash.ExtraKey{ID: "salt"}
	wantChain(t, "a salted block", c.see(beginning(v, 1, 1, 16, 16, salted)), v, 16)
	if !c.salted {
		t.Error("the salted block is not noted")
	}
}

// TestChainIsLookedAtNowAndThen: once known, every 256th first block must still be
// reproduced; while unknown, after the first 64 only every 256th is tried.
func TestChainIsLookedAtNowAndThen(t *testing.T) {
	v, other := hashing(t, prefixhash.SHA256CBOR, prefixhash.Untagged, "0"), hashing(t, prefixhash.SHA256CBOR, prefixhash.Untagged, "1")
	c := chainFinder{candidates: []*prefixhash.VLLM{v}}
	c.see(beginning(v, 1, 1, 16, 16))
	for n := 2; n < chainRecheck; n++ {
		wantChain(t, "between looks", c.see(beginning(other, 1, 1, 16, 16)), v, 16)
	}
	wantChain(t, "at the next look", c.see(beginning(other, 1, 1, 16, 16)), nil, 0)
	c = chainFinder{candidates: []*prefixhash.VLLM{v}}
	for range chainTries - 1 {
		c.see(beginning(other, 1, 1, 16, 16))
	}
	last := c
	wantChain(t, "the last of the first tries", last.see(beginning(v, 1, 1, 16, 16)), v, 16)
	c.see(beginning(other, 1, 1, 16, 16))
	for n := chainTries + 1; n < chainRecheck; n++ {
		wantChain(t, "after the first tries", c.see(beginning(v, 1, 1, 16, 16)), nil, 0)
	}
	wantChain(t, "at the next look", c.see(beginning(v, 1, 1, 16, 16)), v, 16)
	// A salted block distinguishes the generations: the first one is examined at once.
	c = chainFinder{candidates: []*prefixhash.VLLM{v}}
	c.see(beginning(v, 1, 1, 16, 16))
	wantChain(t, "another's salted block", c.see(beginning(other, 1, 1, 16, 16, prefixhash.ExtraKey{ID: "s"})), nil, 0)
	c.see(beginning(v, 1, 1, 16, 16, prefixhash.ExtraKey{ID: "s"}))
	wantChain(t, "a second salted one", c.see(beginning(other, 1, 1, 16, 16, prefixhash.ExtraKey{ID: "s"})), v, 16)
}

// TestPresumedChain: the first candidate of the publisher's generation counts
// before any block has shown it, with the unit told or the greatest that all
// groups' blocks consist of, until a block disproves it.
func TestPresumedChain(t *testing.T) {
	untagged, tagged := hashing(t, prefixhash.SHA256CBOR, prefixhash.Untagged, "0"), hashing(t, prefixhash.XXHash, prefixhash.Tagged, "0")
	random := must.Get(prefixhash.NewVLLM(prefixhash.VLLMOptions{Algorithm: prefixhash.SHA256CBOR, Generation: prefixhash.Untagged}))(t)
	stored := func(size int, spec string) Event {
		return Event{Kind: index.Stored, BlockSize: size, CacheGroup: CacheGroup{Spec: spec}, HasParent: true}
	}
	for name, tt := range map[string]struct {
		unit   int
		events []Event
		want   *prefixhash.VLLM
		is     int
	}{
		"one group":            {0, []Event{stored(16, "")}, untagged, 16},
		"its generation":       {0, []Event{stored(16, "full_attention")}, tagged, 16},
		"blocks of two groups": {0, []Event{stored(48, ""), {Kind: index.Removed, BlockSize: 5}, stored(32, "")}, untagged, 16},
		"told":                 {4, []Event{stored(48, ""), stored(32, "")}, untagged, 4},
		"nothing stored":       {0, []Event{{Kind: index.Removed, BlockSize: 16}}, nil, 0},
		"no block sizes":       {0, []Event{stored(0, "")}, nil, 0},
	} {
		c := chainFinder{candidates: []*prefixhash.VLLM{random, tagged, untagged}, unit: tt.unit, presume: true}
		wantChain(t, name, c.see(tt.events...), tt.want, tt.is)
		c = chainFinder{candidates: []*prefixhash.VLLM{random, tagged, untagged}, unit: tt.unit}
		wantChain(t, name+", nothing presumed", c.see(tt.events...), nil, 0)
	}
	c := chainFinder{candidates: []*prefixhash.VLLM{untagged, tagged}, presume: true}
	c.see(stored(16, ""))
	c.seen = chainRecheck - 1 // so that the next first block is looked at
	wantChain(t, "disproved", c.see(beginning(hashing(t, prefixhash.SHA256CBOR, prefixhash.Untagged, "9"), 1, 1, 16, 16)), nil, 0)
	wantChain(t, "not presumed again", c.see(stored(16, "")), nil, 0)
	c = chainFinder{candidates: []*prefixhash.VLLM{untagged, tagged}, presume: true}
	c.see(stored(16, ""))
	odd := beginning(hashing(t, prefixhash.SHA256CBOR, prefixhash.Untagged, "9"), 1, 1, 24, 24)
	c.seen = chainRecheck - 1
	wantChain(t, "a block that is no multiple of the unit says nothing", c.see(odd), untagged, 16)
}
