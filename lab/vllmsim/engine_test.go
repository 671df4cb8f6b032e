package vllmsim

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// newTestEngine returns an engine that keeps the batches it publishes.
func newTestEngine(t *testing.T, o Options) (*engine, *[][]event) {
	t.Helper()
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	var batches [][]event
	e := newEngine(0, o, func(ev []event) { batches = append(batches, ev) })
	return e, &batches
}

// count is a prompt of n tokens from first on.
func count(first, n int) []uint32 {
	p := make([]uint32, n)
	for i := range p {
		p[i] = uint32(first + i)
	}
	return p
}

func newSeq(prompt []uint32, maxTokens int) *sequence {
	return &sequence{
		prompt: len(prompt), tokens: slices.Clone(prompt), maxTokens: maxTokens,
		next: func(int) uint32 { return 7 }, out: make(chan token, maxTokens+1),
	}
}

// TestTiming checks times to first token under virtual time: uncached prompt
// tokens over the prefill rate, queueing behind others, and one decode step per
// further token whatever the batch.
func TestTiming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := newTestEngine(t, Options{PrefillRate: 1000, DecodeRate: 100, MaxBatchedTokens: 4096})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { e.run(ctx); close(ended) }()
		start := time.Now()
		ttft := func(s *sequence) time.Duration { <-s.out; return time.Since(start) }

		cold := newSeq(count(0, 1600), 11)
		e.submit(cold)
		if got := ttft(cold); got != 1600*time.Millisecond {
			t.Errorf("cold prompt of 1600 tokens: first token after %v", got)
		}
		for range 10 {
			<-cold.out
		}
		if got := time.Since(start); got != 1700*time.Millisecond {
			t.Errorf("10 more tokens: after %v in all", got)
		}
		start = time.Now()
		warm := newSeq(count(0, 1600), 1)
		e.submit(warm)
		if got := ttft(warm); got != 16*time.Millisecond {
			t.Errorf("warm prompt, one block to compute: first token after %v", got)
		}
		start = time.Now()
		a, b := newSeq(count(5000, 1000), 1), newSeq(count(8000, 500), 1)
		e.submit(a, b)
		if got := ttft(a); got != 1500*time.Millisecond {
			t.Errorf("two prompts in one step: the first one's token after %v", got)
		}
		if got := ttft(b); got != 1500*time.Millisecond {
			t.Errorf("two prompts in one step: the second one's token after %v", got)
		}
		cancel()
		<-ended
	})
}

// TestChunkedPrefill: a long prompt takes several steps, caching as it goes.
func TestChunkedPrefill(t *testing.T) {
	e, batches := newTestEngine(t, Options{MaxBatchedTokens: 100})
	s := newSeq(count(0, 250), 1)
	e.submit(s)
	steps := 0
	for {
		if _, any := e.schedule(); !any {
			break
		}
		e.finishStep()
		steps++
	}
	var sizes []int
	for _, b := range *batches {
		for _, ev := range b {
			sizes = append(sizes, len(ev.hashes))
		}
	}
	if steps != 3 || !slices.Equal(sizes, []int{6, 6, 3}) {
		t.Errorf("%d steps storing %v blocks, want 3 storing 6, 6 and 3", steps, sizes)
	}
}

// TestPreemption: when decodes outgrow the cache the newest sequence steps back
// and finishes later; every block is free at the end.
func TestPreemption(t *testing.T) {
	e, _ := newTestEngine(t, Options{Blocks: 11, MaxModelLen: 160})
	a, b := newSeq(count(0, 64), 60), newSeq(count(1000, 64), 60)
	e.submit(a, b)
	for {
		if _, any := e.schedule(); !any {
			break
		}
		e.finishStep()
	}
	if e.stats.preemptions == 0 {
		t.Error("10 blocks held two sequences of 8 blocks at once")
	}
	if len(a.tokens) != 124 || len(b.tokens) != 124 || e.pool.free != 10 {
		t.Errorf("%d and %d tokens, %d blocks free", len(a.tokens), len(b.tokens), e.pool.free)
	}
}

// TestLoRALimit: a sequence whose adapter is one too many for the batch waits,
// and later ones pass it.
func TestLoRALimit(t *testing.T) {
	e, _ := newTestEngine(t, Options{MaxLoRAs: 1})
	seqs := []*sequence{newSeq(count(0, 20), 1), newSeq(count(0, 20), 1), newSeq(count(0, 20), 1)}
	for i, name := range []string{"one", "two", ""} {
		if name != "" {
			seqs[i].lora = &adapter{LoRA: LoRA{Name: name}, id: i + 1}
		}
	}
	e.submit(seqs...)
	e.schedule()
	if len(e.running) != 2 || e.running[1] != seqs[2] || len(e.waiting) != 1 || e.waiting[0] != seqs[1] {
		t.Errorf("%d run, %d wait", len(e.running), len(e.waiting))
	}
}

// TestEngineAgainstModel drives random traffic with aborts and resets through a small
// cache. At every step the pool must be consistent, and a reader of the events must know
// the exact contents of the cache.
func TestEngineAgainstModel(t *testing.T) {
	full := Group{Kind: FullAttention}
	for _, o := range []Options{
		{Version: V021},
		{Version: V032},
		{Groups: []Group{{Kind: SlidingWindow, Window: 9}, full}},
		{Groups: []Group{full, {Kind: SlidingWindow, Window: 20}, {Kind: ChunkedAttention, Chunk: 16}}, Retention: Dense},
		{Groups: []Group{{Kind: Mamba}, {Kind: Mamba}, full}},
		{Groups: []Group{{Kind: Mamba}, full}, Eagle: []int{1}, Draft: 2, Retention: 8},
	} {
		for seed := range uint64(20) {
			checkAgainstModel(t, o, rand.New(rand.NewPCG(seed, 1)))
		}
	}
}

func checkAgainstModel(t *testing.T, o Options, r *rand.Rand) {
	t.Helper()
	o.BlockSize, o.Blocks, o.MaxModelLen, o.MaxBatchedTokens, o.MaxRunning = 4, 2+22*max(1, len(o.Groups)), 80, 30, 4
	e, batches := newTestEngine(t, o)
	held := map[cachedHash]int{}
	var alive []*sequence
	for range 300 {
		switch n := r.IntN(10); {
		case n < 4:
			s := newSeq(count(100*r.IntN(3), 1+r.IntN(60)), 1+r.IntN(20))
			e.submit(s)
			alive = append(alive, s)
		case n == 4 && len(alive) > 0:
			e.abort(alive[r.IntN(len(alive))])
		case n == 5:
			e.reset()
		}
		if _, any := e.schedule(); any {
			e.finishStep()
		}
		for _, b := range *batches {
			applyEvents(t, held, b)
		}
		*batches = nil
		applyEvents(t, held, e.pool.events) // not published yet: the step is still to come
		e.pool.events = nil
		checkPool(t, e, held)
	}
}

// applyEvents counts, for each hash, the copies that a reader has.
func applyEvents(t *testing.T, held map[cachedHash]int, events []event) {
	t.Helper()
	for _, ev := range events {
		switch ev.kind {
		case blockStored:
			for _, d := range ev.hashes {
				held[cachedHash{ev.group, d}]++
			}
		case blockRemoved:
			k := cachedHash{ev.group, ev.hashes[0]}
			if held[k]--; held[k] == 0 {
				delete(held, k)
			}
		default:
			clear(held)
		}
	}
}

func checkPool(t *testing.T, e *engine, held map[cachedHash]int) {
	t.Helper()
	refs := map[*block]int{}
	for _, s := range slices.Concat(e.running, e.waiting) {
		for _, t := range s.tables {
			for _, b := range t.blocks {
				if b != nil {
					refs[b]++
				}
			}
		}
	}
	free := 0
	for b := e.pool.queue.next; b != &e.pool.queue; b = b.next {
		free++
		if b.refs != 0 {
			t.Fatal("a block in use is in the free queue")
		}
	}
	for i := range e.pool.all {
		if b := &e.pool.all[i]; b.refs != refs[b] {
			t.Fatalf("block %d has %d references, %d sequences hold it", i, b.refs, refs[b])
		}
	}
	if free != e.pool.free || free+len(refs) != len(e.pool.all) {
		t.Fatalf("%d in the free queue, counted %d, %d in use of %d", free, e.pool.free, len(refs), len(e.pool.all))
	}
	if len(held) != len(e.pool.byHash) {
		t.Fatalf("a reader of the events knows %d hashes, the pool holds %d", len(held), len(e.pool.byHash))
	}
	for d, blocks := range e.pool.byHash {
		if held[d] != len(blocks) {
			t.Fatalf("a reader counts %d copies, the pool %d", held[d], len(blocks))
		}
	}
}

// TestIdeal: the second turn of a conversation finds all whole blocks of the
// first one's prompt and answer, unless the pool is too small for both.
func TestIdeal(t *testing.T) {
	for blocks, want := range map[int]int{100: 96, 8: 0} { // 7 usable blocks hold one of the two
		c, err := NewIdeal(Options{MaxModelLen: 112}, blocks)
		if err != nil {
			t.Fatal(err)
		}
		first := count(0, 80)
		if hit, err := c.Serve(first, 17); err != nil || hit != 0 {
			t.Fatal(hit, err)
		}
		s := newSpeech(0, first)
		for range 17 {
			first = append(first, s.next())
		}
		if _, err := c.Serve(count(5000, 100), 1); err != nil {
			t.Fatal(err)
		}
		if hit, err := c.Serve(append(first, 1, 2, 3), 1); err != nil || hit != want {
			t.Errorf("%d blocks: %d tokens cached (%v), want %d", blocks, hit, err, want)
		}
	}
}
