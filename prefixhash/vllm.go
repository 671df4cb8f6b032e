package prefixhash

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"
)

// Algorithm is one of the block hash functions vLLM offers
// (--prefix-caching-hash-algo; vllm/utils/hashing.py, the same in 0.21 and 0.32).
type Algorithm uint8

const (
	SHA256     Algorithm = iota + 1 // SHA-256 of pickle protocol 5
	SHA256CBOR                      // SHA-256 of canonical CBOR
	XXHash                          // XXH3-128 of pickle protocol 5
	XXHashCBOR                      // XXH3-128 of canonical CBOR
)

var algorithmNames = [...]string{SHA256: "sha256", SHA256CBOR: "sha256_cbor", XXHash: "xxhash", XXHashCBOR: "xxhash_cbor"}

// ParseAlgorithm reads vLLM's name of an algorithm.
func ParseAlgorithm(name string) (Algorithm, error) {
	if i := slices.Index(algorithmNames[1:], name); i >= 0 {
		return Algorithm(i + 1), nil
	}
	return 0, fmt.Errorf("hash algorithm %q: want sha256, sha256_cbor, xxhash or xxhash_cbor", name)
}

func (a Algorithm) String() string {
	if a.valid() {
		return algorithmNames[a]
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

func (a Algorithm) valid() bool { return a >= SHA256 && a <= XXHashCBOR }

// Generation is a vLLM's way of writing extra keys, with its first parent in the absence
// of PYTHONHASHSEED.
type Generation uint8

const (
	// Untagged writes bare values, as in KV events; the first parent is random unless
	// PYTHONHASHSEED is set. Seen in 0.21 and 0.27; 0.29 and 0.30 have Tagged's fixed
	// seed already.
	Untagged Generation = iota + 1
	// Tagged writes each value with its type, and the adapter's path with its name;
	// without PYTHONHASHSEED the SHA-256 algorithms start from a fixed seed. Since 0.31.
	Tagged
)

var generationNames = [...]string{Untagged: "untagged", Tagged: "tagged"}

// ParseGeneration reads "untagged" or "tagged".
func ParseGeneration(name string) (Generation, error) {
	if i := slices.Index(generationNames[1:], name); i >= 0 {
		return Generation(i + 1), nil
	}
	return 0, fmt.Errorf("generation %q: want tagged or untagged", name)
}

func (g Generation) String() string {
	if g.valid() {
		return generationNames[g]
	}
	return fmt.Sprintf("Generation(%d)", uint8(g))
}

func (g Generation) valid() bool { return g == Untagged || g == Tagged }

// defaultSeed is the seed of the first parent in vLLM from 0.29 on without PYTHONHASHSEED
// (DEFAULT_NONE_HASH_SEED).
const defaultSeed = "vllm-none-hash"

// VLLMOptions describe how a replica hashes its blocks.
type VLLMOptions struct {
	Algorithm  Algorithm
	Generation Generation
	Seed       *string // the replica's PYTHONHASHSEED; nil: not set
}

// VLLM computes block digests as one configuration of vLLM does, byte for byte. It is
// immutable except for the buffers it keeps.
type VLLM struct {
	o        VLLMOptions
	root     Digest
	encoders sync.Pool // of *blockEncoder
}

// NewVLLM returns the VLLM of o. It fails on an unknown algorithm or generation.
func NewVLLM(o VLLMOptions) (*VLLM, error) {
	if !o.Algorithm.valid() {
		return nil, fmt.Errorf("hash algorithm %v: not known", o.Algorithm)
	}
	if !o.Generation.valid() {
		return nil, fmt.Errorf("generation %v: not known", o.Generation)
	}
	v := &VLLM{o: o}
	switch {
	case o.Seed != nil:
		v.root = v.seedDigest(*o.Seed)
	case o.Generation == Tagged && (o.Algorithm == SHA256 || o.Algorithm == SHA256CBOR):
		v.root = v.seedDigest(defaultSeed)
	}
	return v, nil
}

// NewVLLMFrom is NewVLLM for a replica with a known NONE_HASH in place of its seed.
func NewVLLMFrom(a Algorithm, g Generation, root Digest) (*VLLM, error) {
	v, err := NewVLLM(VLLMOptions{Algorithm: a, Generation: g})
	if err != nil {
		return nil, err
	}
	if !root.Full() {
		return nil, fmt.Errorf("root of %d bytes: want a whole digest", root.n)
	}
	v.root = root
	return v, nil
}

// Algorithm returns the algorithm v was made with.
func (v *VLLM) Algorithm() Algorithm { return v.o.Algorithm }

// Generation returns the generation v was made with.
func (v *VLLM) Generation() Generation { return v.o.Generation }

// Seeded reports whether v was made with a seed of its own.
func (v *VLLM) Seeded() bool { return v.o.Seed != nil && *v.o.Seed != defaultSeed }

// String describes v without its seed, which vLLM keeps secret for the
// algorithms that do not resist collisions.
func (v *VLLM) String() string {
	seed := "no seed"
	if v.Seeded() {
		seed = "own seed"
	}
	return fmt.Sprintf("%v, %v, %s", v.o.Algorithm, v.o.Generation, seed)
}

// MarshalText implements encoding.TextMarshaler.
func (v *VLLM) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Root returns the parent of every first block (vLLM's NONE_HASH); false when
// vLLM draws it at random, so that chains can only be resumed from a digest it
// has published.
func (v *VLLM) Root() (Digest, bool) { return v.root, v.root.Full() }

func (v *VLLM) pickles() bool { return v.o.Algorithm == SHA256 || v.o.Algorithm == XXHash }

func (v *VLLM) seedDigest(seed string) Digest {
	if v.pickles() {
		return v.sum(appendPickledString(nil, seed))
	}
	return v.sum(appendCBORString(nil, seed))
}

func (v *VLLM) sum(b []byte) Digest {
	if v.o.Algorithm == SHA256 || v.o.Algorithm == SHA256CBOR {
		return Digest{b: sha256.Sum256(b), n: sha256.Size}
	}
	d := Digest{n: 16}
	sum := xxh3.Hash128(b).Bytes()
	copy(d.b[:], sum[:])
	return d
}

// Position is a place in a chain of digests: the block of number Block, behind Parent, or
// behind Root for Block 0.
type Position struct {
	Parent Digest
	Block  int
}

// AppendDigests appends the digests of the full blocks of tokens for a request. tokens
// starts with the first token of the block at a position. It appends nothing if the parent
// is not a full digest.
func (v *VLLM) AppendDigests(dst []Digest, at Position, tokens []uint32, blockSize int, r Request) []Digest {
	if blockSize <= 0 || at.Block < 0 || !at.Parent.Full() {
		return dst
	}
	e := v.encoder(r.LoRA, r.LoRAPath)
	items, parent := mmCursor{items: byOffset(r.MM)}, at.Parent
	for start := at.Block * blockSize; len(tokens) >= blockSize; start += blockSize {
		e.keys = r.appendBlock(e.keys[:0], &items, start, start+blockSize)
		e.block(&parent, tokens[:blockSize], e.keys)
		parent = v.sum(e.buf)
		dst = append(dst, parent)
		tokens = tokens[blockSize:]
	}
	v.release(e)
	return dst
}

func (v *VLLM) encoder(lora LoRA, loraPath string) *blockEncoder {
	e, _ := v.encoders.Get().(*blockEncoder)
	if e == nil {
		e = &blockEncoder{pickle: v.pickles(), tagged: v.o.Generation == Tagged}
	}
	e.lora, e.loraPath = lora, loraPath
	return e
}

// release keeps the encoder for the next call, without the request's strings.
func (v *VLLM) release(e *blockEncoder) {
	e.lora, e.loraPath = LoRA{}, ""
	clear(e.keys[:cap(e.keys)])
	v.encoders.Put(e)
}
