package kvevents

import (
	"sync/atomic"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/internal/testenv"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

func realIndex(t testing.TB) *index.Index {
	t.Helper()
	x := index.New(index.Options{})
	t.Cleanup(func() {
		x.Close()
	})
	return x
}

// TestCaptureIndex: the index itself holds as many blocks as the engine after
// every frame, and predicts every step.
func TestCaptureIndex(t *testing.T) {
	for name, c := range captures(t) {
		t.Run(name, func(t *testing.T) {
			x := realIndex(t)
			p := newPlayer(t, x)
			want := truth{held: map[uint64]int{}}
			payloads := make(map[uint64][]byte)
			for _, f := range c.Frames {
				payloads[f.Seq] = f.Payload
			}
			for _, s := range c.Steps {
				tokens := s.tokens(t)
				if tokens != nil && want.size > 0 && s.Name != "after-reset" {
					if got := lookup(x, p.world.o.holder(), c, s, tokens, want.size); got != s.Usage.cached() {
						t.Errorf("%s: %d tokens predicted, vLLM reused %d", s.Name, got, s.Usage.cached())
					}
				}
				for _, seq := range s.EventSeqs {
					want.apply(t, payloads[seq])
					p.play(t, seq, payloads[seq])
					if got := x.Holdings(p.world.o.holder()); got != len(want.held) {
						t.Fatalf("after frame %d: %d blocks held, the engine holds %d", seq, got, len(want.held))
					}
				}
			}
			if p.world.sequencer.count.ApplyErrors != 0 {
				t.Errorf("the index refused %d batches: %s", p.world.sequencer.count.ApplyErrors, p.world.Status().LastError)
			}
		})
	}
}

func lookup(x *index.Index, h index.Holder, c *capture, s step, tokens []uint32, size int) int {
	blocks := (len(tokens) - 1) / size
	r := requestOf(c, s)
	scope := index.Scope{Model: captureModel, LoRA: r.LoRA, Scheme: index.SchemeTokens, BlockSize: size}
	keys := prefixhash.AppendTokens(nil, prefixhash.TokenRoot(captureModel, r.LoRA), tokens[:blocks*size], prefixhash.Blocks{Size: size}, r.AppendExtras(nil, blocks, size, 0))
	for _, m := range x.Lookup(nil, scope, keys) {
		if m.ID == x.ID(h) {
			return int(m.Blocks) * size
		}
	}
	return 0
}

// TestIndexExpiry: an index that let a silent replica go gets its history again.
func TestIndexExpiry(t *testing.T) {
	var skew atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
	x := index.New(index.Options{Now: clock})
	defer x.Close()
	p := publisher(t, kvtest.Options{})
	o := options(p)
	o.ProbeQuiet, o.Now = time.Hour, clock
	r := &rig{t: t, pub: p, sink: newMapSink(), ctx: t.Context(), want: map[uint64]int{}, next: 1, sub: subscriber(t, o)}
	r.sub.to = x
	r.store(3)
	testenv.Run(t, r.sub.Run)
	reaches := func(what string, blocks int) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); x.Holdings(r.sub.o.holder()) != blocks; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d blocks, want %d; %+v", what, x.Holdings(r.sub.o.holder()), blocks, r.sub.Status())
			}
		}
	}
	reaches("history", 3)
	r.subscribed()
	skew.Store(int64(index.DefaultReplicaTTL + time.Minute))
	x.Sweep()
	reaches("expired", 0)
	r.store(2)
	reaches("learned anew", 5)
}

// keysOf is a prompt of blocks of two tokens.
type keysOf []prefixhash.Key

func (k keysOf) Tokens() int { return 2 * len(k) }

func (k keysOf) AppendChain(dst []prefixhash.Key, c index.Keying) []prefixhash.Key {
	return append(dst, k...)
}

// TestChunkWithoutItsSalt: an offloading connector describes a block by its tokens, but
// leaves out the salt that its hash covers. The block is found with its salt alone.
func TestChunkWithoutItsSalt(t *testing.T) {
	x := realIndex(t)
	h := index.Holder{Replica: "10.0.0.1:8000"}
	inc := x.Begin(h)
	r := NewReader(ReaderOptions{Model: "m"})
	stored := func(hash int, tokens []any, medium string, extras ...any) map[string]any {
		e := map[string]any{"type": "BlockStored", "block_hashes": []any{hash}, "parent_block_hash": nil, "token_ids": tokens,
			"block_size": 2, "medium": medium, "group_idx": 0, "kv_cache_spec_kind": "full_attention"}
		if extras != nil {
			e["extra_keys"] = extras
		}
		return e
	}
	read := func(events ...any) {
		b := must.Get(r.Read(kvtest.Pack([]any{1.0, events, nil})))(t)
		b.Holder, b.Incarnation = h, inc
		must.Get(x.Apply(b))(t)
	}
	lower := func(tokens []uint32, salt string) int32 {
		var extras [][]prefixhash.ExtraKey
		if salt != "" {
			extras = [][]prefixhash.ExtraKey{{{ID: salt}}}
		}
		keys := keysOf(prefixhash.AppendTokens(nil, prefixhash.TokenRoot("m", prefixhash.LoRA{}), tokens, prefixhash.Blocks{Size: 2}, extras))
		var f index.Found
		x.FindPrompt(&f, index.Scope{Model: "m", Scheme: index.SchemeTokens, BlockSize: 2}, keys, keys)
		for m := range f.All() {
			return m.Lower
		}
		return 0
	}
	read(stored(1, []any{1, 2}, "GPU", []any{"salt"}), stored(2, []any{3, 4}, "GPU", nil))
	read(stored(1, []any{1, 2}, "CPU"), stored(2, []any{3, 4}, "CPU"), stored(3, []any{5, 6}, "CPU"))
	read(map[string]any{"type": "BlockRemoved", "block_hashes": []any{1, 2}, "medium": "GPU", "group_idx": 0})
	for _, one := range []struct {
		tokens []uint32
		salt   string
		want   int32
	}{{[]uint32{1, 2}, "", 0}, {[]uint32{1, 2}, "salt", 1}, {[]uint32{3, 4}, "", 1}, {[]uint32{3, 4}, "salt", 0}, {[]uint32{5, 6}, "", 0}} {
		if got := lower(one.tokens, one.salt); got != one.want {
			t.Errorf("%v with salt %q: %d blocks in the CPU tier, want %d", one.tokens, one.salt, got, one.want)
		}
	}
}
