package main

import (
	"fmt"
	"slices"
	"time"

	"warmroute/index"
	"warmroute/prefixhash"
)

const groupBlock = 16

// groupKind is one of the fleets that groups compares.
type groupKind struct {
	name    string
	extra   int    // groups besides full attention
	windows bool   // of 128, 256, 512, … tokens; else Mamba states
	drops   uint32 // groups that drop a block for a draft model, as bits
	hashed  bool   // no full attention: only vLLM's hashes show the position of blocks
}

// groupKinds are full attention alone, and with other groups, each without a draft model
// and with one.
var groupKinds = []groupKind{
	{name: "dense"},
	{name: "3 states", extra: 3}, {name: "5 states", extra: 5}, {name: "3 windows", extra: 3, windows: true}, {name: "5 windows", extra: 5, windows: true},
	{name: "dense, all drop", drops: all}, {name: "3 states, all drop", extra: 3, drops: all},
	{name: "1 window, all drop", extra: 1, windows: true, drops: all}, {name: "5 windows, full drops", extra: 5, windows: true, drops: 1 << 5},
	{name: "3 windows, all drop", extra: 3, windows: true, drops: all},
	{name: "states alone, by hash", extra: 1, hashed: true}, {name: "3 windows alone, by hash", extra: 3, windows: true, hashed: true},
}

const all = ^uint32(0)

// groups prints the cost of a lookup among holders with cache groups, and among holders
// of full attention alone. The replicas hold an eighth, two eighths, … of one prompt, and
// the extra groups hold its end. Lookups of all fleets take turns, so that other work of
// the machine affects all of them.
func groups(replicas, blocks []int, rounds int) error {
	for _, r := range replicas {
		for _, b := range blocks {
			if err := groupsOf(r, b, rounds); err != nil {
				return err
			}
		}
	}
	return nil
}

// groupFleet is an index with all replicas of one kind.
type groupFleet struct {
	x      *index.Index
	scope  index.Scope
	kind   groupKind
	prompt groupPrompt
	keys   []prefixhash.Key
	found  index.Found
	times  []time.Duration // of one lookup, by round
}

func groupsOf(replicas, blocks, rounds int) error {
	const lookups = 20 // each round
	var fleets []*groupFleet
	for _, kind := range groupKinds {
		f, err := newGroupFleet(replicas, blocks, kind)
		if err != nil {
			return err
		}
		defer f.x.Close()
		fleets = append(fleets, f)
	}
	apart := slices.IndexFunc(groupKinds, func(k groupKind) bool { return k.hashed }) // their tables are large: the others' would be out of the caches each time
	for round := range rounds + rounds/10 + 2 {
		turn, first := fleets[:apart], round == 0
		if round > rounds {
			turn, first = fleets[apart:], round == rounds+1
		}
		for _, f := range turn {
			start := time.Now()
			for range lookups {
				if err := f.lookup(replicas, blocks); err != nil {
					return err
				}
			}
			if !first { // the first round makes space
				f.times = append(f.times, time.Since(start)/lookups)
			}
		}
	}
	fmt.Printf("groups R=%d L=%d:", replicas, blocks)
	dense := quantile(fleets[0].times, 0.5)
	for i, f := range fleets {
		t := quantile(f.times, 0.5)
		fmt.Printf(" %s %d ns", groupKinds[i].name, t)
		if i > 0 {
			fmt.Printf(" (%.2fx)", float64(t)/float64(dense))
		}
	}
	fmt.Printf(" vLLM's hashes %d ns\n", fleets[0].prompt.took)
	return nil
}

func newGroupFleet(replicas, blocks int, kind groupKind) (*groupFleet, error) {
	x := index.New(index.Options{})
	f := &groupFleet{x: x, scope: index.Scope{Model: "m", Scheme: index.SchemeTokens, BlockSize: groupBlock}, kind: kind} // as a decision looks up where the full-attention group is not configured
	tokens := make([]uint32, blocks*groupBlock+1)
	for i := range tokens {
		tokens[i] = uint32(i*7 + 1)
	}
	var err error
	if f.prompt, err = newGroupPrompt(tokens); err != nil {
		return nil, err
	}
	f.keys = f.prompt.AppendChain(nil, index.Keying{Unit: groupBlock})
	for r := range replicas {
		h := index.Holder{Replica: fmt.Sprint("r", r)}
		x.SetGroups(h.Replica, &index.GroupSettings{Eagle: kind.drops, EagleKnown: true})
		b := index.Batch{Holder: h, Incarnation: x.Begin(h), Events: groupEvents(f.prompt, part(r, blocks), kind)}
		if kind.hashed {
			b.Keying = index.Keying{Hash: f.prompt.hash, Unit: groupBlock}
		}
		if _, err := x.Apply(&b); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// part returns the number of blocks that a replica holds.
func part(replica, blocks int) int { return blocks * (8 - replica%8) / 8 }

// lookup finds the prompt, and returns an error if the result differs from the replicas'
// blocks.
func (f *groupFleet) lookup(replicas, blocks int) error {
	f.x.FindPrompt(&f.found, f.scope, f.keys, &f.prompt)
	got, n := 0, 0
	for m := range f.found.All() {
		got += int(m.Blocks)
		n++
	}
	want := replicas / 8 * (8 + 1) * blocks / 2
	if f.kind.drops != 0 {
		want -= replicas
	}
	if n != replicas || got != want {
		return fmt.Errorf("%s: %d replicas, %d blocks: %d found with %d blocks, want %d", f.kind.name, replicas, blocks, n, got, want)
	}
	return nil
}

// groupEvents stores a prompt's first blocks in full attention, and their end in extra
// groups.
func groupEvents(prompt groupPrompt, blocks int, kind groupKind) []index.Event {
	p := prompt.tokens[:blocks*groupBlock]
	contents := prefixhash.AppendContents(nil, p, prefixhash.Blocks{Size: groupBlock}, nil)
	names := make([]uint64, len(contents))
	for i := range names {
		names[i] = uint64(prompt.hashes[i])
	}
	scope := func(group int, scheme string) index.Scope {
		return index.Scope{Model: "m", Scheme: scheme, BlockSize: groupBlock, Group: group}
	}
	var events []index.Event
	for g := range kind.extra {
		e := index.Event{Kind: index.Stored, Scope: scope(g, "engine"), Tokens: len(p)}
		switch {
		case kind.windows:
			drop := 0
			if kind.drops != 0 {
				drop = 1
			}
			e.Spec, e.Window, e.Hashes = "sliding_window", 128<<g, names[max(0, len(names)-drop-(128<<g+groupBlock-1)/groupBlock):]
		default:
			e.Spec, e.Hashes = "mamba", names[len(names)-1:]
			if kind.drops != 0 {
				e.Hashes = names[max(0, len(names)-2):]
			}
		}
		events = append(events, e)
	}
	if kind.hashed {
		return events
	}
	full := index.Event{Kind: index.Stored, Scope: scope(kind.extra, index.SchemeTokens), Spec: "full_attention", Hashes: names, Content: contents, Tokens: len(p)}
	return slices.Concat(events, []index.Event{full})
}

// groupPrompt is a prompt of token ids, with its blocks' hashes as vLLM computes them.
type groupPrompt struct {
	tokens []uint32
	hash   *prefixhash.VLLM
	hashes []prefixhash.Key
	took   time.Duration // best time of computing the hashes
}

func newGroupPrompt(tokens []uint32) (p groupPrompt, err error) {
	seed := "0"
	if p.hash, err = prefixhash.NewVLLM(prefixhash.VLLMOptions{Algorithm: prefixhash.SHA256CBOR, Generation: prefixhash.Tagged, Seed: &seed}); err != nil {
		return p, err
	}
	p.tokens = tokens
	root, _ := p.hash.Root()
	for i := range 5 {
		start := time.Now()
		p.hashes = p.hashes[:0]
		for _, d := range p.hash.AppendDigests(nil, prefixhash.Position{Parent: root}, tokens, groupBlock, prefixhash.Request{}) {
			p.hashes = append(p.hashes, d.Key())
		}
		if took := time.Since(start); i == 0 || took < p.took {
			p.took = took
		}
	}
	return p, nil
}

func (p *groupPrompt) Tokens() int { return len(p.tokens) }

// AppendChain returns hashes of vLLM that newGroupPrompt computed: their cost is no part
// of a lookup.
func (p *groupPrompt) AppendChain(dst []prefixhash.Key, c index.Keying) []prefixhash.Key {
	if c.Hash != nil {
		return append(dst, p.hashes...)
	}
	return prefixhash.AppendTokens(dst, prefixhash.TokenRoot("m", prefixhash.LoRA{}), p.tokens, prefixhash.Blocks{Size: c.Unit}, nil)
}
