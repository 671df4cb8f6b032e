package kvevents

import (
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"warmroute/index"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/prefixhash"
)

// TestTensorRT: payloads of the form of TensorRT-LLM's kv_cache_events.py, made by hand. Blocks
// of plain tokens have this project's keys; those with media or with an adapter, which has no
// name, are kept by their hash alone, and the batch is read all the same.
func TestTensorRT(t *testing.T) {
	stored := func(hash int64, tokens any, more ...kvtest.Field) kvtest.Fields {
		return append(kvtest.Fields{{Name: "type", Value: "BlockStored"}, {Name: "block_hashes", Value: []int64{hash}}, {Name: "parent_block_hash", Value: nil},
			{Name: "token_ids", Value: tokens}, {Name: "block_size", Value: 2}, {Name: "lora_id", Value: nil}, {Name: "medium", Value: "GPU"}, {Name: "lora_name", Value: nil}}, more...)
	}
	segment := map[string]any{"type": "mm_key", "hash": "00ff", "start_offset": 0, "uuid": "u"}
	adapted := stored(6, []int{5, 6})
	adapted[5].Value = 7
	payload, err := msgpack.Marshal([]any{1.5, []any{
		stored(1, []int{5, 6}),
		stored(2, []int{5, 6}, kvtest.Field{Name: "mm_keys", Value: []any{[]any{}}}),
		stored(3, []int{5, 6}, kvtest.Field{Name: "mm_keys", Value: []any{[]any{segment, segment}}}),
		stored(4, []any{5, "00ff00ff"}),
		stored(5, []any{5, int64(1) << 40}),
		adapted,
		kvtest.Fields{{Name: "type", Value: "BlockRemoved"}, {Name: "block_hashes", Value: []int64{1, 4}}, {Name: "medium", Value: "GPU"}},
		kvtest.Fields{{Name: "type", Value: "AllBlocksCleared"}},
	}, 3})
	if err != nil {
		t.Fatal(err)
	}
	r := NewReader(ReaderOptions{Model: "m", Adapter: TensorRT()})
	b, err := r.Read(payload)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Events) != 8 {
		t.Fatalf("%+v", b.Events)
	}
	want := prefixhash.AppendContents(nil, []uint32{5, 6}, 2, nil)
	for i := range 6 {
		e := &b.Events[i]
		keyed := i < 2
		if e.Tier != index.TierGPU || e.ByHash || (e.Scope.Scheme == index.SchemeTokens) != keyed || keyed && e.Content[0] != want[0] || e.Hashes[0] != uint64(i+1) {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	if b.Events[6].Kind != index.Removed || len(b.Events[6].Hashes) != 2 || b.Events[7].Kind != index.Cleared {
		t.Errorf("%+v", b.Events[6:])
	}
	for _, broken := range []kvtest.Fields{
		stored(1, []int{5, 6}, kvtest.Field{Name: "mm_keys", Value: 3}),
		stored(1, []any{5, []int{6}}),
	} {
		payload, err := msgpack.Marshal([]any{1.5, []any{broken}, 0})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := r.Read(payload); err == nil {
			t.Errorf("%+v", b.Events)
		}
	}
}
