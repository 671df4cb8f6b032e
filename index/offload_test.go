package index

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"warmroute/render/testkit/must"
	"warmroute/render/testkit/race"
)

// tiered is a holder of full attention with a connector that moves chunks of two blocks.
type tiered struct {
	*Index
	t *testing.T
	Holder
	life   uint64
	prompt tokensPrompt
	hashes []uint64
	full   Event
}

func newTiered(t *testing.T, x *Index, replica string, blocks int) *tiered {
	t.Helper()
	h := &tiered{Index: x, t: t, Holder: Holder{Replica: replica}, prompt: somePrompt(blocks * groupBlock)}
	h.full = fullAndWindow(h.prompt, 0)[1]
	h.full.Scope = groupSpace
	h.hashes, h.life = h.full.Hashes, x.Begin(h.Holder)
	return h
}

func (h *tiered) apply(events ...Event) Result {
	h.t.Helper()
	return must.Get(h.Apply(&Batch{Holder: h.Holder, Incarnation: h.life, Events: events}))(h.t)
}

// stored is an event of CPU memory for a chunk that ends with a block.
func (h *tiered) stored(c Connector, block int) Event {
	scope := groupSpace
	scope.BlockSize = 0
	return Event{Kind: Stored, Scope: scope, Tier: TierCPU, ByHash: true, Connector: c, Hashes: h.hashes[block : block+1]}
}

func (h *tiered) gone(tier Tier, blocks ...int) Event {
	e := Event{Kind: Removed, Scope: groupSpace, Tier: tier}
	for _, b := range blocks {
		e.Hashes = append(e.Hashes, h.hashes[b])
	}
	return e
}

// wantLoaded checks the blocks on GPU and the tokens loaded behind them of the prompt's first
// tokens.
func (h *tiered) wantLoaded(what string, tokens, hit, loaded int) {
	h.t.Helper()
	if m := findOne(h.t, h.Index, h.Holder, h.prompt[:tokens]); int(m.Hit) != hit || int(m.Loaded) != loaded || m.Lower < (m.Hit+m.Loaded)/groupBlock {
		h.t.Errorf("%s: %+v, want %d tokens from the GPU and %d loaded", what, m, hit, loaded)
	}
}

// TestChunksBelowTheGPU: chunks are joined to what the GPU has announced, in any order, and
// looked up whole behind the GPU's hit.
func TestChunksBelowTheGPU(t *testing.T) {
	const b = groupBlock
	h := newTiered(t, newGroups(t, nil), "a:1", 8)
	h.apply(h.full)
	h.apply(h.stored(OffloadChunks, 5), h.stored(OffloadChunks, 1), h.stored(OffloadChunks, 3)) // the last one first
	h.wantLoaded("all on GPU", 8*b, 7*b, 0)
	h.apply(h.gone(TierGPU, 7, 6, 5, 4, 3))
	h.wantLoaded("behind the GPU's blocks", 8*b, 3*b, 3*b)
	h.wantLoaded("to the last token of whole chunks", 6*b, 3*b, 3*b)
	h.wantLoaded("a chunk that the prompt cuts", 6*b-1, 3*b, 0)
	h.apply(h.gone(TierGPU, 2, 1, 0))
	h.wantLoaded("nothing on GPU", 8*b, 0, 6*b)
	if n := h.TierHoldings(h.Holder, TierCPU); n != 3 {
		t.Errorf("%d blocks held, want the three chunks", n)
	}
	if res := h.apply(h.gone(TierCPU, 3, 7)); res.Removed != 1 {
		t.Errorf("%+v, want one chunk removed", res)
	}
	h.wantLoaded("behind a gap", 8*b, 0, 2*b)
	h.apply(h.stored(OffloadChunks, 3))
	h.wantLoaded("stored again, though the GPU has dropped it", 8*b, 0, 6*b)
	h.apply(Event{Kind: Cleared})
	h.wantLoaded("the GPU's clear is not the tier's", 8*b, 0, 6*b)
	if trust, _ := h.Trust(h.ID(h.Holder), "", "m"); trust.Exact {
		t.Error("whether the tier was cleared is not known, but the holder is called exact")
	}
	h.apply(h.stored(OffloadChunks, 1)) // a connector stores no chunk that it has
	h.wantLoaded("proven clear", 8*b, 0, 2*b)
	h.Begin(h.Holder)
	h.wantLoaded("begun again", 8*b, 0, 0)
	if n := h.counts().Grouped; n != 0 {
		t.Errorf("%d blocks are still counted", n)
	}
}

// TestCountsSettleAClear: after a clear, what a replica counts for a prompt decides whether
// its CPU memory was cleared, too.
func TestCountsSettleAClear(t *testing.T) {
	for kept, counted := range map[bool]int{true: 4 * groupBlock, false: 0} {
		h := newTiered(t, newGroups(t, nil), "a:1", 4)
		h.SetGroups(h.Replica, &GroupSettings{EagleKnown: true})
		h.apply(h.full)
		h.apply(h.stored(OffloadChunks, 1), h.stored(OffloadChunks, 3))
		h.apply(Event{Kind: Cleared})
		id := h.ID(h.Holder)
		g := h.Guess(id, groupSpace, h.prompt.AppendChain(nil, Keying{Unit: groupBlock}), h.prompt)
		other := groupSpace
		other.Model = "other"
		for _, nobodys := range []Guess{h.Guess(77, groupSpace, nil, h.prompt), h.Guess(id, other, nil, h.prompt), {}} {
			h.Answered(id, groupSpace, &nobodys, counted, true)
		}
		h.Answered(77, groupSpace, &g, counted, true)
		h.Answered(id, other, &g, counted, true)
		if trust, _ := h.Trust(id, "", "m"); trust.Exact {
			t.Errorf("kept %v: answers of others have settled the doubt", kept)
		}
		h.Answered(id, groupSpace, &g, counted, true)
		h.wantLoaded(fmt.Sprintf("kept %v", kept), 4*groupBlock, 0, counted)
		if trust, ok := h.Trust(h.ID(h.Holder), "", "m"); !ok || !trust.Exact {
			t.Errorf("kept %v: the doubt is settled, but %+v", kept, trust)
		}
	}
}

// TestBlocksBelowTheGPU: SimpleCPUOffloadConnector needs no whole chunk, counts copies, and
// announces the clear of its memory besides the GPU's.
func TestBlocksBelowTheGPU(t *testing.T) {
	const b = groupBlock
	h := newTiered(t, newGroups(t, nil), "a:1", 4)
	h.apply(h.full)
	h.apply(h.stored(OffloadSingles, 2), h.stored(OffloadSingles, 1), h.stored(OffloadSingles, 1), h.gone(TierGPU, 3, 2, 1))
	h.wantLoaded("behind one block", 4*b, b, 2*b)
	h.apply(h.gone(TierCPU, 1))
	h.wantLoaded("a copy is left", 4*b, b, 2*b)
	h.apply(h.gone(TierCPU, 1))
	h.wantLoaded("no copy is left", 4*b, b, 0)
	h.apply(h.stored(OffloadSingles, 0), h.stored(OffloadSingles, 1))
	h.apply(Event{Kind: Cleared})
	h.wantLoaded("the GPU's clear", 4*b, 0, 3*b)
	h.apply(Event{Kind: Cleared}, Event{Kind: Cleared})
	h.wantLoaded("both cleared", 4*b, 0, 0)
}

// TestWhoseClear: SimpleCPUOffloadConnector's AllBlocksCleared looks like the GPU's. The events
// around it show whose it is.
func TestWhoseClear(t *testing.T) {
	const b = groupBlock
	later := func(h *tiered) Event { // of a prompt whose first block the GPU must have
		e := h.full
		e.HasParent, e.Parent, e.Hashes, e.Content = true, h.hashes[3], []uint64{99}, e.Content[:1]
		return e
	}
	cleared := Event{Kind: Cleared}
	for name, c := range map[string]struct {
		batches     func(h *tiered) [][]Event
		hit, loaded int
		exact       bool
	}{
		"nothing else":                   {func(h *tiered) [][]Event { return [][]Event{{cleared}} }, 0, 3 * b, false},
		"a removal from CPU memory":      {func(h *tiered) [][]Event { return [][]Event{{h.gone(TierCPU, 3), cleared}} }, 3 * b, 0, true},
		"the GPU's events behind it":     {func(h *tiered) [][]Event { return [][]Event{{cleared, h.full}} }, 3 * b, 0, true},
		"a prompt goes on":               {func(h *tiered) [][]Event { return [][]Event{{cleared}, {later(h)}} }, 3 * b, 0, true},
		"the GPU still has blocks":       {func(h *tiered) [][]Event { return [][]Event{{cleared}, {h.gone(TierGPU, 3)}} }, 3 * b, 0, true},
		"the same prompt is stored":      {func(h *tiered) [][]Event { return [][]Event{{cleared}, {h.full}, {h.gone(TierGPU, 3, 2, 1)}} }, b, 2 * b, true},
		"CPU memory still has blocks":    {func(h *tiered) [][]Event { return [][]Event{{cleared}, {h.gone(TierCPU, 3)}} }, 0, 3 * b, false},
		"both, and CPU memory's is last": {func(h *tiered) [][]Event { return [][]Event{{cleared, cleared}} }, 0, 0, true},
	} {
		h := newTiered(t, newGroups(t, nil), "a:1", 4)
		h.SetGroups(h.Replica, &GroupSettings{EagleKnown: true})
		h.apply(h.full)
		for i := range h.hashes {
			h.apply(h.stored(OffloadSingles, i))
		}
		for _, events := range c.batches(h) {
			h.apply(events...)
		}
		h.wantLoaded(name, 4*b, c.hit, c.loaded)
		if trust, _ := h.Trust(h.ID(h.Holder), "", "m"); trust.Exact != c.exact {
			t.Errorf("%s: %+v, want exact %v", name, trust, c.exact)
		}
	}
}

// TestDraftsHideWhoseClear: with a draft model a prompt may not hit its first block, so that the
// GPU stores the block again does not show that it was cleared.
func TestDraftsHideWhoseClear(t *testing.T) {
	for drafts, exact := range map[uint32]bool{0: true, 1: false} {
		h := newTiered(t, newGroups(t, nil), "a:1", 4)
		h.SetGroups(h.Replica, &GroupSettings{EagleKnown: true, Eagle: drafts})
		h.apply(h.full)
		for i := range h.hashes {
			h.apply(h.stored(OffloadSingles, i))
		}
		h.apply(Event{Kind: Cleared})
		h.apply(h.full)
		if trust, _ := h.Trust(h.ID(h.Holder), "", "m"); trust.Exact != exact {
			t.Errorf("groups with a draft model %b: %+v, want exact %v", drafts, trust, exact)
		}
	}
}

// TestSilentClear: without an AllBlocksCleared, a replica's count that is too low shows that CPU
// memory was cleared.
func TestSilentClear(t *testing.T) {
	const b = groupBlock
	h := newTiered(t, newGroups(t, nil), "a:1", 6)
	h.SetGroups(h.Replica, &GroupSettings{EagleKnown: true})
	h.apply(h.full)
	h.apply(h.stored(OffloadChunks, 1), h.stored(OffloadChunks, 3), h.stored(OffloadChunks, 5))
	h.apply(h.gone(TierGPU, 5, 4, 3, 2, 1, 0))
	want := func(what string, tokens int, exact bool) {
		t.Helper()
		if g, ok := h.ExplainGroups(h.ID(h.Holder), groupSpace, h.prompt[:tokens]); !ok || g.Trust.Exact != exact {
			t.Errorf("%s, a prompt of %d tokens: %+v, want exact %v", what, tokens, g.Trust, exact)
		}
	}
	want("before", 6*b, true)
	g := h.Guess(h.ID(h.Holder), groupSpace, h.prompt.AppendChain(nil, Keying{Unit: b}), h.prompt)
	h.Answered(h.ID(h.Holder), groupSpace, &g, 0, false)
	want("counted less beside others, which may have evicted blocks", 6*b, true)
	h.Answered(h.ID(h.Holder), groupSpace, &g, 0, true)
	want("counted less", 6*b, false)
	want("counted less", b, true) // no whole chunk
	h.apply(h.gone(TierCPU, 3))
	want("the second chunk was there", 6*b, false)
	h.apply(h.stored(OffloadChunks, 1))
	want("the first is stored again", 6*b, true)
}

// TestAClearAfterASettledOne: a chunk that is stored again after a doubt was settled shows another
// clear, which may have taken what was stored since.
func TestAClearAfterASettledOne(t *testing.T) {
	const b = groupBlock
	h := newTiered(t, newGroups(t, nil), "a:1", 6)
	h.SetGroups(h.Replica, &GroupSettings{EagleKnown: true})
	h.apply(h.full)
	h.apply(h.stored(OffloadChunks, 1), h.stored(OffloadChunks, 3))
	h.apply(Event{Kind: Cleared})
	h.apply(h.gone(TierCPU, 3))
	if trust, _ := h.Trust(h.ID(h.Holder), "", "m"); !trust.Exact {
		t.Errorf("a removal has settled the doubt: %+v", trust)
	}
	h.apply(h.stored(OffloadChunks, 3), h.stored(OffloadChunks, 1))
	h.wantLoaded("what may be gone counts", 6*b, 0, 4*b)
	if trust, _ := h.Trust(h.ID(h.Holder), "", "m"); trust.Exact {
		t.Error("the second chunk may be gone, but the holder is called exact")
	}
}

// TestUnknownBelowTheGPU: blocks that no event has described count once one has; until then
// the holder is inexact, as it is with a connector that announces no removals.
func TestUnknownBelowTheGPU(t *testing.T) {
	h := newTiered(t, newGroups(t, nil), "a:1", 4)
	h.SetGroups(h.Replica, &GroupSettings{EagleKnown: true})
	exact := func(want bool) {
		t.Helper()
		if trust, _ := h.Trust(h.ID(h.Holder), "", "m"); trust.Exact != want {
			t.Errorf("%q, want exact %v", trust.Why, want)
		}
	}
	h.apply(h.stored(OffloadChunks, 1), h.stored(OffloadChunks, 3))
	h.wantLoaded("not described", 4*groupBlock, 0, 0)
	h.apply(h.full)
	exact(true)
	h.apply(h.gone(TierGPU, 3, 2, 1, 0), h.gone(TierCPU, 3), h.stored(OffloadChunks, 3))
	h.wantLoaded("described", 4*groupBlock, 0, 4*groupBlock)
	e := h.stored(NoConnector, 2)
	h.apply(e)
	exact(false)
}

// TestTiersAreLookedUpTogether: a lookup answers members with equal tiers at once, and the
// others by themselves.
func TestTiersAreLookedUpTogether(t *testing.T) {
	x := newGroups(t, nil)
	var fleet []*tiered
	for i := range 140 {
		h := newTiered(t, x, fmt.Sprint("r", i), 8)
		h.apply(h.full)
		for chunk := range 1 + i%4 {
			h.apply(h.stored(OffloadChunks, 2*chunk+1))
		}
		if h.apply(h.gone(TierGPU, 7, 6, 5, 4, 3, 2)); i%7 == 0 {
			h.apply(h.gone(TierGPU, 1, 0))
		}
		fleet = append(fleet, h)
	}
	for i, h := range fleet {
		below, hit := 2*(1+i%4)*groupBlock, 2*groupBlock
		if i%7 == 0 {
			hit = 0
		}
		h.wantLoaded(h.Replica, 8*groupBlock, hit, below-hit)
	}
}

// TestTiersWhileReading: lookups run while chunks come and go, and find a possible result.
func TestTiersWhileReading(t *testing.T) {
	x := newGroups(t, nil)
	var wg sync.WaitGroup
	for i := range 3 {
		h := newTiered(t, x, fmt.Sprint("r", i), 16)
		h.apply(h.full, h.gone(TierGPU, 15, 14, 13, 12, 11, 10, 9, 8))
		wg.Go(func() {
			for round := range 200 {
				for _, c := range []int{9, 11, 13, 15} {
					if h.apply(h.stored(OffloadChunks, c)); round%3 == 0 {
						h.apply(h.gone(TierCPU, c))
					}
				}
				if round%50 == 49 {
					h.apply(Event{Kind: Cleared}, h.full, h.gone(TierGPU, 15, 14, 13, 12, 11, 10, 9, 8))
				}
			}
		})
	}
	p := somePrompt(16 * groupBlock)
	keys := p.AppendChain(nil, Keying{Unit: groupBlock})
	for range 2 {
		wg.Go(func() {
			var f Found
			for range 2000 {
				x.FindPrompt(&f, groupSpace, slices.Clone(keys), p)
				for m := range f.All() {
					if m.Loaded < 0 || m.Hit+m.Loaded > int32(len(p)) {
						t.Errorf("%+v of %d tokens", m, len(p))
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestARemovalSettlesAClear: a chunk that is removed in a later batch than an AllBlocksCleared shows
// that CPU memory was not cleared with the GPU. In the same batch it may have been removed before.
func TestARemovalSettlesAClear(t *testing.T) {
	h := newTiered(t, newGroups(t, nil), "a:1", 6)
	h.SetGroups(h.Replica, &GroupSettings{EagleKnown: true})
	h.apply(h.full)
	h.apply(h.stored(OffloadChunks, 1), h.stored(OffloadChunks, 3), h.stored(OffloadChunks, 5))
	for _, batch := range [][]Event{{{Kind: Cleared}, h.gone(TierCPU, 5)}, {h.gone(TierCPU, 3)}} {
		h.apply(batch...)
		if trust, _ := h.Trust(h.ID(h.Holder), "", "m"); trust.Exact != (len(batch) == 1) {
			t.Errorf("behind %d other events: %+v", len(batch)-1, trust)
		}
	}
	h.wantLoaded("the first chunk is left", 6*groupBlock, 0, 2*groupBlock)
}

// TestDoubtHidesNoBlocks: while blocks in CPU memory come into doubt and out of it, each lookup
// finds all of them.
func TestDoubtHidesNoBlocks(t *testing.T) {
	const b = groupBlock
	h := newTiered(t, newGroups(t, nil), "a:1", 16)
	h.apply(h.full)
	for c := 1; c < 16; c += 2 {
		h.apply(h.stored(OffloadChunks, c))
	}
	keys := h.prompt.AppendChain(nil, Keying{Unit: b})
	h.apply(Event{Kind: Cleared})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 5000 {
			g := h.Guess(h.ID(h.Holder), groupSpace, keys, h.prompt)
			h.Answered(h.ID(h.Holder), groupSpace, &g, 16*b, false)
			h.apply(Event{Kind: Cleared})
		}
	}()
	for {
		select {
		case <-done:
			return
		default:
			h.wantLoaded("in doubt or not", 16*b, 0, 16*b)
		}
		if t.Failed() {
			<-done
			return
		}
	}
}

// TestTierLookupsAllocateNothing: neither connector's rule allocates in a lookup or a guess.
func TestTierLookupsAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, c := range []Connector{OffloadChunks, OffloadSingles} {
		h := newTiered(t, newGroups(t, nil), "a:1", 16)
		h.apply(h.full, h.stored(c, 8), h.stored(c, 9), h.stored(c, 11), h.gone(TierGPU, 15, 14, 13, 12, 11, 10, 9, 8))
		keys := h.prompt.AppendChain(nil, Keying{Unit: groupBlock})
		var f Found
		var p Prompt = h.prompt
		lookup := func() {
			h.FindPrompt(&f, groupSpace, keys, p)
			_ = h.Guess(h.ID(h.Holder), groupSpace, keys, p)
		}
		lookup()
		if n := testing.AllocsPerRun(100, lookup); n > 0 {
			t.Errorf("connector %d: %v allocations", c, n)
		}
	}
}
