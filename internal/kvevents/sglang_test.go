package kvevents

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"warmroute/index"
	"warmroute/prefixhash"
	"warmroute/render/testkit/golden"
	"warmroute/render/testkit/must"
)

// TestSGLangFirstHashes: the computed hash of each prompt's first page is the one that
// SGLang's own caches published, with salts, pairs, and namespaces of format dynamo.
func TestSGLangFirstHashes(t *testing.T) {
	files, err := filepath.Glob("../cli/predict/testdata/sglang/0.5.23-*.jsonl.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	salted, paired, spaced := 0, 0, 0
	for _, name := range files {
		dynamo := strings.Contains(name, "dynamo")
		a := SGLang(SGLangOptions{Dynamo: dynamo})
		d := Decoder{Adapter: a}
		var hash prefixhash.SGLang
		for line := range golden.Lines(t, name) {
			var l struct{ Frame *struct{ Payload []byte } }
			must.Do(t, json.Unmarshal(line, &l))
			if l.Frame == nil {
				continue
			}
			b, err := d.Decode(l.Frame.Payload)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for i := range b.Events {
				e := &b.Events[i]
				if e.Kind != index.Stored || e.HasParent || e.LoRA.Set {
					continue
				}
				page := append(append([]uint32(nil), e.Tokens...), e.Behind...)[:e.BlockSize+e.Ahead]
				first := hash.First(page, e.Ahead > 0, e.Salt)
				if dynamo {
					first = hash.Namespaced(first, "", e.Salt)
				}
				if _, in := a.(*sglang).namespaceOf(e); in && dynamo {
					spaced++
				} else if first != e.Hashes[0] {
					t.Fatalf("%s: hash %x of a page with salt %q, published %x", name, first, e.Salt, e.Hashes[0])
				}
				if e.Salt != "" {
					salted++
				}
				paired += e.Ahead
			}
		}
	}
	if salted < 10 || paired < 10 || spaced < 10 {
		t.Errorf("%d salted, %d of pairs, %d in namespaces: the captures do not show enough", salted, paired, spaced)
	}
}

// stored returns a payload with one event of SGLang's form.
func sglangStoredPayload(t *testing.T, tokens any, more ...any) []byte {
	t.Helper()
	e := map[string]any{"type": "BlockStored", "block_hashes": []int64{-7, 8}, "parent_block_hash": nil, "token_ids": tokens, "block_size": 2}
	for i := 0; i < len(more); i += 2 {
		e[more[i].(string)] = more[i+1]
	}
	return must.Get(msgpack.Marshal([]any{1.5, []any{e}, 0}))(t)
}

func TestSGLangPairs(t *testing.T) {
	d := Decoder{Adapter: SGLang(SGLangOptions{})}
	b, err := d.Decode(sglangStoredPayload(t, [][]int{{1, 2}, {2, 3}, {3, 4}, {4, 5}}))
	if err != nil {
		t.Fatal(err)
	}
	e := b.Events[0]
	if got := append(append([]uint32{}, e.Tokens...), e.Behind...); len(e.Tokens) != 4 || e.Ahead != 1 || e.Unkeyed || got[0] != 1 || got[3] != 4 || got[4] != 5 {
		t.Errorf("%+v", e)
	}
	for _, pairs := range []any{[][]int{{1, 2}, {3, 4}}, [][]int64{{1, 2}, {2, 1 << 40}}} { // no chain; no token
		if b, err = d.Decode(sglangStoredPayload(t, pairs)); err != nil || !b.Events[0].Unkeyed {
			t.Errorf("%v: %v, %+v", pairs, err, b)
		}
	}
	if b, err := d.Decode(sglangStoredPayload(t, []any{}, "extra_keys", []any{})); err != nil || b.Events[0].TokenCount != 0 || b.Events[0].Ahead != 0 {
		t.Errorf("no tokens: %v, %+v", err, b)
	}
	empty := must.Get(msgpack.Marshal([]any{1.5, []any{[]any{"BlockRemoved", []int64{}}, []any{"BlockStored", []int64{}, nil, []int{}, []int{2}}}}))(t)
	if _, err := d.Decode(empty); !errors.Is(err, ErrType) {
		t.Errorf("%v, want ErrType", err)
	}
	for _, broken := range []any{[][]int{{1, 2, 3}}, [][]int{{}}, []any{[]int{1, 2}, 3}} {
		if _, err := d.Decode(sglangStoredPayload(t, broken)); !errors.Is(err, ErrType) {
			t.Errorf("%v: %v, want ErrType", broken, err)
		}
	}
}

// TestSGLangArrays: the array form has medium where SGLang writes it, and vLLM's later fields
// do not follow.
func TestSGLangArrays(t *testing.T) {
	payload := must.Get(msgpack.Marshal([]any{1.5, []any{
		[]any{"BlockStored", []int64{1}, nil, []int{5, 6}, 2, nil, "CPU_PINNED"}, []any{"BlockRemoved", []int64{1}, "CPU_PINNED"}, []any{"BlockStored", []int64{2}, nil, []int{5, 6}, 2, nil}}}))(t)
	r := NewReader(ReaderOptions{Model: "m", Adapter: SGLang(SGLangOptions{})})
	b := must.Get(r.Read(payload))(t)
	if len(b.Events) != 3 || b.Events[0].Tier != index.TierCPU || b.Events[1].Tier != index.TierCPU || b.Events[2].Tier != index.TierGPU || b.Events[0].ByHash {
		t.Errorf("%+v", b.Events)
	}
}
