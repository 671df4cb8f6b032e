package vllmsim

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"warmroute/render/testkit/golden"

	"github.com/vmihailenco/msgpack/v5"
)

// capture is a real vLLM's answers and events (internal/testdata/vllm).
type capture struct {
	Steps  []captureStep `json:"steps"`
	Frames []struct {
		Seq     uint64 `json:"seq"`
		Payload []byte `json:"payload_b64"` // encoding/json reads base64 into []byte
	} `json:"frames"`
}

type captureStep struct {
	Name   string          `json:"name"`
	Path   string          `json:"path"`
	Body   json.RawMessage `json:"body"`
	Tokens []uint32        `json:"tokens"`
	Render json.RawMessage `json:"render"`
	Usage  *struct {
		Prompt     int `json:"prompt_tokens"`
		Input      int `json:"input_tokens"`
		Completion int `json:"completion_tokens"`
		Output     int `json:"output_tokens"`
		Created    int `json:"cache_creation_input_tokens"`
		Read       int `json:"cache_read_input_tokens"`
		Details    *struct {
			Cached  int `json:"cached_tokens"`
			Created int `json:"created_cache_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	EventSeqs []uint64 `json:"event_seqs"`
}

func loadCapture(t *testing.T, file string) *capture {
	t.Helper()
	c := &capture{}
	golden.Read(t, file, c)
	if len(c.Steps) == 0 || len(c.Frames) == 0 {
		t.Fatalf("%s: no steps or no frames", file)
	}
	return c
}

// prompts are the step's prompts as token ids, or nil if the capture has none.
func (s *captureStep) prompts() [][]uint32 {
	if s.Tokens != nil {
		return [][]uint32{s.Tokens}
	}
	type rendered struct {
		Tokens []uint32 `json:"token_ids"`
	}
	var one rendered
	if json.Unmarshal(s.Render, &one) == nil && one.Tokens != nil {
		return [][]uint32{one.Tokens}
	}
	var many []rendered
	if json.Unmarshal(s.Render, &many) != nil {
		return nil
	}
	var out [][]uint32
	for _, r := range many {
		out = append(out, r.Tokens)
	}
	return out
}

// spoken follows a capture's events and keeps the tokens up to each block, so
// that answers, which the capture does not give as tokens, can be spoken again.
type spoken map[any][]uint32

// longest applies one batch and returns the longest token sequence it names.
func (k spoken) longest(t *testing.T, payload []byte) (longest []uint32) {
	t.Helper()
	for _, e := range decodeBatch(t, payload).stored() {
		prefix := slices.Clip(k[hashKey(e.parent)])
		size := len(e.tokens) / len(e.hashes) // captures hold full blocks only
		for i, h := range e.hashes {
			prefix = append(prefix, e.tokens[i*size:(i+1)*size]...)
			k[hashKey(h)] = slices.Clone(prefix)
		}
		if len(prefix) > len(longest) {
			longest = prefix
		}
	}
	return longest
}

func hashKey(h any) any {
	if b, ok := h.([]byte); ok {
		return string(b)
	}
	return h
}

type decodedBatch []any

type decodedStore struct {
	hashes []any
	parent any
	tokens []uint32
}

func decodeBatch(t *testing.T, payload []byte) decodedBatch {
	t.Helper()
	d := msgpack.NewDecoder(bytes.NewReader(payload))
	d.UseLooseInterfaceDecoding(true)
	v, err := d.DecodeInterfaceLoose()
	if err != nil {
		t.Fatal(err)
	}
	return v.([]any)
}

func (b decodedBatch) stored() (out []decodedStore) {
	for _, e := range b[1].([]any) {
		field := func(i int, name string) any {
			if m, ok := e.(map[string]any); ok {
				return m[name]
			}
			return e.([]any)[i]
		}
		if field(0, "type") != "BlockStored" {
			continue
		}
		s := decodedStore{hashes: field(1, "block_hashes").([]any), parent: field(2, "parent_block_hash")}
		for _, v := range field(3, "token_ids").([]any) {
			s.tokens = append(s.tokens, uint32(reflect.ValueOf(v).Convert(reflect.TypeFor[uint64]()).Uint()))
		}
		out = append(out, s)
	}
	return out
}

func seed(s string) *string { return &s }

// TestCaptures feeds the requests of each capture to an engine and wants the
// batches that vLLM published: all bytes but the time stamp.
func TestCaptures(t *testing.T) {
	for _, c := range []struct {
		file  string
		o     Options
		exact bool // false: the adapter's path is not known, so hashes are compared as names only
	}{
		{"capture-0.21.0", Options{Version: V021, BlockSize: 16, Blocks: 256, HashAlgorithm: "sha256_cbor", HashSeed: seed("42")}, true},
		{"capture-0.32.0", Options{Version: V032, BlockSize: 32, Blocks: 128}, true},
		{"capture-bytes-0.32.0", Options{Version: V032, BlockSize: 32, Blocks: 128, HashAlgorithm: "xxhash_cbor", HashSeed: seed("7"), HashBytes: true}, true},
		{"capture-lora-0.32.0", Options{Version: V032, BlockSize: 32, Blocks: 128, LoRAs: []LoRA{{Name: "sql-lora", Path: "/adapters/sql-lora"}}}, false},
	} {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			c.o.MaxModelLen = 4000
			replayCapture(t, loadCapture(t, filepath.Join("..", "..", "internal", "testdata", "vllm", c.file+".json.gz")), c.o, c.exact)
		})
	}
}

func replayCapture(t *testing.T, c *capture, o Options, exact bool) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	var batches [][]event
	e := newEngine(0, o, func(ev []event) { batches = append(batches, ev) })
	w := wireOf(o, 0)
	known, gotNames, wantNames := spoken{}, map[any]int{}, map[any]int{}
	frame := 0
	for _, step := range c.Steps {
		batches = nil
		if step.Path == "/reset_prefix_cache" {
			if !e.reset() {
				t.Fatalf("%s: refused", step.Name)
			}
			continue
		}
		var said []uint32
		for _, seq := range step.EventSeqs {
			if l := known.longest(t, c.Frames[seq].Payload); len(l) > len(said) {
				said = l
			}
		}
		seqs := captureSequences(t, &step, said, o)
		e.submit(seqs...)
		for {
			if _, any := e.schedule(); !any {
				break
			}
			e.finishStep()
		}
		if len(batches) != len(step.EventSeqs) {
			t.Fatalf("%s: %d batches, vLLM published %d", step.Name, len(batches), len(step.EventSeqs))
		}
		for _, b := range batches {
			want := c.Frames[frame].Payload
			got := w.append(nil, math.Float64frombits(binary.BigEndian.Uint64(want[2:])), b)
			if exact && !bytes.Equal(got, want) {
				t.Fatalf("%s: batch %d differs:\n got %v\nwant %v", step.Name, frame, decodeBatch(t, got), decodeBatch(t, want))
			}
			if g, w := canonical(decodeBatch(t, got), gotNames), canonical(decodeBatch(t, want), wantNames); !reflect.DeepEqual(g, w) {
				t.Fatalf("%s: batch %d differs:\n got %v\nwant %v", step.Name, frame, g, w)
			}
			frame++
		}
		checkUsage(t, &step, seqs)
	}
	if frame != len(c.Frames) {
		t.Errorf("%d batches, vLLM published %d", frame, len(c.Frames))
	}
}

// captureSequences are the step's prompts with their answers. Tokens that no
// event names are 0: they fill no block.
func captureSequences(t *testing.T, step *captureStep, said []uint32, o Options) (out []*sequence) {
	t.Helper()
	u := step.Usage
	prompts := step.prompts()
	if prompts == nil {
		p := make([]uint32, u.Input)
		copy(p, said)
		prompts = [][]uint32{p}
	}
	var body struct {
		Model string `json:"model"`
		Salt  string `json:"cache_salt"`
	}
	if err := json.Unmarshal(step.Body, &body); err != nil {
		t.Fatal(err)
	}
	for _, p := range prompts {
		s := &sequence{prompt: len(p), tokens: slices.Clone(p), maxTokens: (u.Completion + u.Output) / len(prompts), salt: body.Salt}
		s.out = make(chan token, s.maxTokens+1)
		s.next = func(n int) uint32 {
			if at := s.prompt + n; at < len(said) {
				return said[at]
			}
			return 0
		}
		for i, l := range o.LoRAs {
			if l.Name == body.Model {
				s.lora = &adapter{LoRA: l, id: i + 1}
			}
		}
		out = append(out, s)
	}
	return out
}

// checkUsage compares the tokens that were read from and put into the cache.
func checkUsage(t *testing.T, step *captureStep, seqs []*sequence) {
	t.Helper()
	u, last := step.Usage, <-seqs[len(seqs)-1].out
	switch {
	case u.Details != nil:
		if u.Details.Cached != last.hit {
			t.Errorf("%s: %d tokens from the cache, vLLM says %d", step.Name, last.hit, u.Details.Cached)
		}
		if u.Details.Created != 0 && u.Details.Created != last.created {
			t.Errorf("%s: %d tokens put into the cache, vLLM says %d", step.Name, last.created, u.Details.Created)
		}
	case u.Read+u.Created > 0:
		if u.Read != last.hit || u.Created != last.created {
			t.Errorf("%s: read %d created %d, vLLM says %d and %d", step.Name, last.hit, last.created, u.Read, u.Created)
		}
	}
}

// canonical replaces each hash of a decoded 0.32 batch by the order in which
// names first saw it, which is the same on both sides while they agree.
func canonical(b decodedBatch, names map[any]int) []any {
	name := func(h any) any {
		if h == nil {
			return nil
		}
		k := hashKey(h)
		if _, ok := names[k]; !ok {
			names[k] = len(names)
		}
		return names[k]
	}
	events := b[1].([]any)
	for _, e := range events {
		m, ok := e.(map[string]any)
		if !ok {
			continue
		}
		if hashes, ok := m["block_hashes"].([]any); ok {
			for i := range hashes {
				hashes[i] = name(hashes[i])
			}
		}
		if p, ok := m["parent_block_hash"]; ok {
			m["parent_block_hash"] = name(p)
		}
	}
	return events
}
