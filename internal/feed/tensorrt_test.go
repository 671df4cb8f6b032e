package feed

import (
	"testing"

	"warmroute/index"
	"warmroute/internal/fleet"
	"warmroute/internal/kvevents/kvtest"
)

// TestTensorRT: the events of a TensorRT-LLM are read and found by tokens, and its predictions
// are unconfirmed as long as no count of it agrees.
func TestTensorRT(t *testing.T) {
	h := newHarness(t)
	p, err := kvtest.Start(kvtest.Options{Topic: "kv"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	tokens := make([]uint32, 64)
	p.PublishRaw(kvtest.Pack([]any{1.5, []any{kvtest.Fields{{Name: "type", Value: "BlockStored"}, {Name: "block_hashes", Value: []int64{-5, 6}},
		{Name: "parent_block_hash", Value: nil}, {Name: "token_ids", Value: tokens}, {Name: "block_size", Value: 32}, {Name: "lora_id", Value: nil},
		{Name: "medium", Value: "GPU"}, {Name: "lora_name", Value: nil}, {Name: "mm_keys", Value: []any{[]any{}, []any{}}}}}, 0}))
	r := &fleet.Replica{Addr: "10.0.0.1:8000", Ready: true, BlockSize: 32, Version: "1.3.0", TensorRT: true, Ranks: []int{0}, Models: []fleet.Model{{ID: "m", Base: "m"}},
		Events: []fleet.EventSource{{Endpoint: p.Endpoint(), ReplayEndpoint: p.ReplayEndpoint(), Topic: "kv"}}}
	h.feed.Join(r)
	prompt := &sglangPrompt{tokens: append(tokens, 1)}
	h.until("the prompt is found", func() bool { return h.hit(r, prompt) == 64 })
	g, ok := h.index.ExplainGroups(h.index.ID(index.Holder{Replica: r.Addr}), index.Scope{Model: "m", Scheme: index.SchemeTokens, BlockSize: 32}, prompt)
	if !ok || g.Trust.Exact || !g.Trust.Unconfirmed || g.Hit != 64 {
		t.Errorf("%+v", g)
	}
}
