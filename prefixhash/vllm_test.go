package prefixhash

import (
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"warmroute/render/testkit/golden"
	"warmroute/render/testkit/must"
)

// vector is one request hashed by vLLM's own functions (testdata/*.json.gz).
type vector struct {
	version   string
	Algo      string
	Seed      *string
	NoneHash  string `json:"none_hash"`
	BlockSize int    `json:"block_size"`
	Case      string
	Tokens    []uint32
	LoRA      *[2]string `json:"lora"`
	CacheSalt *string    `json:"cache_salt"`
	MM        [][3]any   `json:"mm"`
	EventKeys [][]any    `json:"event_extra_keys"`
	Embeds    bool
	Hashes    []string
}

// vectors returns the vectors of every file that matches testdata/pattern.
func vectors(t testing.TB, pattern string) []vector {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) < 2 { // both generations
		t.Fatalf("testdata/%s: %d files, %v; want one per vLLM version", pattern, len(files), err)
	}
	var all []vector
	for _, name := range files {
		var file struct {
			VLLM    string
			Vectors []vector
		}
		golden.Read(t, name, &file)
		if len(file.Vectors) == 0 {
			t.Fatalf("%s: no vectors", name)
		}
		for _, v := range file.Vectors {
			v.version, _, _ = strings.Cut(file.VLLM, "+")
			all = append(all, v)
		}
	}
	return all
}

func (v *vector) hasher(t testing.TB) *VLLM {
	t.Helper()
	algorithm := must.Get(ParseAlgorithm(v.Algo))(t)
	generation := map[string]Generation{"0.21.0": Untagged, "0.32.0": Tagged}[v.version]
	return must.Get(NewVLLM(VLLMOptions{Algorithm: algorithm, Generation: generation, Seed: v.Seed}))(t)
}

func (v *vector) request() Request {
	r := Request{CacheSalt: v.CacheSalt}
	if v.LoRA != nil {
		r.LoRA, r.LoRAPath = LoRA{Name: v.LoRA[0], Set: true}, v.LoRA[1]
	}
	for _, m := range v.MM {
		r.MM = append(r.MM, MM{ID: m[0].(string), Offset: int(m[1].(float64)), Length: int(m[2].(float64))})
	}
	return r
}

// extras reads the published extra keys; ends with nil for blocks without.
func (v *vector) extras() [][]ExtraKey {
	var all [][]ExtraKey
	for _, block := range v.EventKeys {
		var keys []ExtraKey
		for _, k := range block {
			switch k := k.(type) {
			case string:
				keys = append(keys, ExtraKey{ID: k})
			case []any:
				keys = append(keys, ExtraKey{ID: k[0].(string), Offset: int64(k[1].(float64)), HasOffset: true})
			}
		}
		all = append(all, keys)
	}
	return all
}

func hexes(ds []Digest) []string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = d.String()
	}
	return out
}

func TestVLLMVectors(t *testing.T) {
	for i, v := range append(vectors(t, "blockhash-*.json.gz"), vectors(t, "edge-*.json.gz")...) {
		t.Run(fmt.Sprintf("%s/%s/%s/%d", v.version, v.Algo, v.Case, i), func(t *testing.T) {
			t.Parallel()
			h, r := v.hasher(t), v.request()
			root, ok := h.Root()
			if !ok || root.String() != v.NoneHash {
				t.Fatalf("root %s, %v; want %s", root, ok, v.NoneHash)
			}
			if len(v.Hashes) != len(v.Tokens)/v.BlockSize {
				t.Fatalf("vector has %d hashes for %d tokens", len(v.Hashes), len(v.Tokens))
			}
			if v.Embeds { // a request of ours cannot carry embeddings
				return
			}
			whole := h.AppendDigests(nil, Position{Parent: root}, v.Tokens, v.BlockSize, r)
			if !slices.Equal(hexes(whole), v.Hashes) {
				t.Errorf("got %v\nwant %v", hexes(whole), v.Hashes)
			}
			checkResume(t, &v, h, r, whole)
			checkExtras(t, &v, r)
		})
	}
}

// checkResume goes on from every block's digest.
func checkResume(t *testing.T, v *vector, h *VLLM, r Request, whole []Digest) {
	t.Helper()
	for i := range whole {
		got := h.AppendDigests(nil, Position{Parent: whole[i], Block: i + 1}, v.Tokens[(i+1)*v.BlockSize:], v.BlockSize, r)
		if !slices.Equal(got, whole[i+1:]) {
			t.Errorf("resumed behind block %d: %v, want %v", i, got, whole[i+1:])
		}
	}
}

// checkExtras compares the extra keys derived from the request with the
// published ones.
func checkExtras(t *testing.T, v *vector, r Request) {
	t.Helper()
	blocks := len(v.Tokens) / v.BlockSize
	got, want := r.AppendExtras(nil, blocks, v.BlockSize, 0), v.extras()
	for i := range blocks {
		var g, w []ExtraKey
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if !slices.Equal(g, w) {
			t.Errorf("extra keys of block %d: %v, want %v", i, g, w)
		}
	}
	if len(got) > 0 && len(got[len(got)-1]) == 0 {
		t.Errorf("extra keys end with a block that has none")
	}
}

// TestVectorsCoverAll guards against a vector file that lost a part.
func TestVectorsCoverAll(t *testing.T) {
	seen := map[string]int{}
	for _, v := range vectors(t, "blockhash-*.json.gz") {
		seed := "default"
		if v.Seed != nil {
			seed = "set"
		}
		seen[v.version+" "+v.Algo+" "+seed]++
	}
	for _, version := range []string{"0.21.0", "0.32.0"} {
		for _, algorithm := range algorithmNames[1:] {
			if seen[version+" "+algorithm+" set"] == 0 {
				t.Errorf("no vector of %s %s with a seed", version, algorithm)
			}
		}
	}
	for _, algorithm := range []string{"sha256", "sha256_cbor"} {
		if seen["0.32.0 "+algorithm+" default"] == 0 {
			t.Errorf("no vector of 0.32.0 %s with the default seed", algorithm)
		}
	}
}

func TestRootUnknown(t *testing.T) {
	for _, c := range []struct {
		a     Algorithm
		g     Generation
		known bool
	}{
		{SHA256, Tagged, true}, {SHA256CBOR, Tagged, true}, {XXHash, Tagged, false}, {XXHashCBOR, Tagged, false},
		{SHA256, Untagged, false}, {SHA256CBOR, Untagged, false}, {XXHash, Untagged, false}, {XXHashCBOR, Untagged, false},
	} {
		h := must.Get(NewVLLM(VLLMOptions{Algorithm: c.a, Generation: c.g}))(t)
		root, ok := h.Root()
		if ok != c.known || root.Full() != c.known {
			t.Errorf("%v: root known is %v, want %v", h, ok, c.known)
		}
		if got := h.AppendDigests(nil, Position{Parent: root}, make([]uint32, 16), 16, Request{}); (len(got) == 1) != c.known {
			t.Errorf("%v: %d digests from its root", h, len(got))
		}
	}
}

func TestBadArgumentsAppendNothing(t *testing.T) {
	h := must.Get(NewVLLM(VLLMOptions{Algorithm: SHA256, Generation: Tagged}))(t)
	root, _ := h.Root()
	tokens := make([]uint32, 64)
	if got := h.AppendDigests(nil, Position{Parent: root}, tokens, 0, Request{}); got != nil {
		t.Error("block size 0")
	}
	if got := h.AppendDigests(nil, Position{Parent: root, Block: -1}, tokens, 16, Request{}); got != nil {
		t.Error("first block -1")
	}
	if got := h.AppendDigests(nil, Position{Parent: Digest{n: 8}}, tokens, 16, Request{}); got != nil {
		t.Error("a parent of 8 bytes")
	}
	if got := AppendTokens(nil, 1, tokens, Blocks{Size: -16}, nil); got != nil {
		t.Error("tokens, block size -16")
	}
	if got := AppendContents(nil, tokens, Blocks{Size: 0}, nil); got != nil {
		t.Error("contents, block size 0")
	}
	salt := "s"
	if got := (Request{CacheSalt: &salt}).AppendExtras(nil, 4, 0, 0); got != nil {
		t.Error("extras, block size 0")
	}
	for _, o := range []VLLMOptions{{}, {Algorithm: SHA256}, {Algorithm: SHA256, Generation: 3}, {Algorithm: 5, Generation: Tagged}} {
		if _, err := NewVLLM(o); err == nil {
			t.Errorf("NewVLLM(%+v): no error", o)
		}
	}
}

func TestDigest(t *testing.T) {
	b, _ := hex.DecodeString("00112233445566778899aabbccddeeff")
	d, err := ParseDigest(b)
	if err != nil || !d.Full() || d.Key() != 0x8899aabbccddeeff || d.String() != hex.EncodeToString(b) {
		t.Errorf("%v %v %x", d, err, d.Key())
	}
	short := must.Get(ParseDigest([]byte{0x80, 7: 5}))(t)
	if short.Full() || short.Key() != 1<<63|5 || short.String() != "8000000000000005" {
		t.Errorf("%v", short)
	}
	for _, n := range []int{0, 7, 9, 31, 33} {
		if _, err := ParseDigest(make([]byte, n)); err == nil {
			t.Errorf("%d bytes: no error", n)
		}
	}
}
