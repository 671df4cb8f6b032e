package vllmsim

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"

	"github.com/zeebo/xxh3"
)

// digest is a block's hash: 32 bytes for sha256, 16 for xxhash.
type digest struct {
	b [32]byte
	n uint8
}

func (d *digest) bytes() []byte { return d.b[:d.n] }

// low returns the integer that vLLM publishes for a digest: its last 8 bytes, big-endian.
func (d *digest) low() uint64 { return binary.BigEndian.Uint64(d.b[d.n-8 : d.n]) }

// extraKey is one value that a block's hash covers besides its tokens. tag is "lora" (text
// and path), "mm" (text and offset) or "cache_salt" (text).
type extraKey struct {
	tag, text, path string
	offset          int
}

func knownAlgorithm(name string) bool {
	switch name {
	case "sha256", "sha256_cbor", "xxhash", "xxhash_cbor":
		return true
	}
	return false
}

// hasher makes vLLM's block hashes:
// hash((parent, tuple(token ids), extra keys or None)).
type hasher struct {
	cbor, xxhash, tagged bool
	root                 digest
	buf, body            []byte // scratch; a hasher serves one goroutine
}

// newHasher returns the hasher of o. The root is vLLM's NONE_HASH: the hash of
// PYTHONHASHSEED, or without one 0.32's fixed text for the sha256 algorithms
// (vllm/v1/core/kv_cache_utils.py, resolve_none_hash_seed), else random.
func newHasher(o Options) *hasher {
	h := &hasher{
		cbor:   o.HashAlgorithm == "sha256_cbor" || o.HashAlgorithm == "xxhash_cbor",
		xxhash: o.HashAlgorithm == "xxhash" || o.HashAlgorithm == "xxhash_cbor",
		tagged: o.Version == V032,
	}
	switch {
	case o.HashSeed != nil:
		h.root = h.ofText(*o.HashSeed)
	case h.tagged && !h.xxhash:
		h.root = h.ofText("vllm-none-hash")
	default:
		h.root.n = 32
		r := rand.New(rand.NewPCG(uint64(o.Seed), 0x6e6f6e65)) // a reproducible stand-in for os.urandom
		for i := 0; i < 32; i += 8 {
			binary.LittleEndian.PutUint64(h.root.b[i:], r.Uint64())
		}
	}
	return h
}

func (h *hasher) sum(data []byte) (d digest) {
	if h.xxhash {
		s := xxh3.Hash128(data).Bytes()
		copy(d.b[:], s[:])
		d.n = 16
		return d
	}
	d.b, d.n = sha256.Sum256(data), 32
	return d
}

func (h *hasher) ofText(s string) digest {
	if h.cbor {
		return h.sum(appendCBORText(nil, s))
	}
	p := pickler{}
	p.text(s)
	return h.sum(p.finish(nil))
}

// block returns the hash of the block of tokens that follows parent.
func (h *hasher) block(parent *digest, tokens []uint32, extra []extraKey) digest {
	if h.cbor {
		h.buf = h.appendCBOR(h.buf[:0], parent, tokens, extra)
		return h.sum(h.buf)
	}
	p := pickler{out: h.body[:0]}
	p.bytes(parent.bytes())
	p.ints(tokens)
	if len(extra) == 0 {
		p.none()
	} else {
		p.tupleOf(len(extra), func(i int) { h.pickleExtra(&p, extra[i]) })
	}
	p.closeTuple(3)
	h.body = p.out
	h.buf = p.finish(h.buf[:0])
	return h.sum(h.buf)
}

// pickleExtra writes one extra key: tagged tuples in 0.32, in 0.21 the plain
// LoRA name or salt, or (id, offset).
func (h *hasher) pickleExtra(p *pickler, k extraKey) {
	if !h.tagged {
		p.text(k.text)
		if k.tag == "mm" {
			p.int(k.offset)
			p.closeTuple(2)
		}
		return
	}
	p.constant(k.tag)
	p.text(k.text)
	switch k.tag {
	case "lora":
		p.text(k.path)
		p.closeTuple(3)
	case "mm":
		p.int(k.offset)
		p.closeTuple(3)
	default:
		p.closeTuple(2)
	}
}

func (h *hasher) appendCBOR(dst []byte, parent *digest, tokens []uint32, extra []extraKey) []byte {
	dst = appendCBORHead(dst, 4, 3)
	dst = appendCBORHead(dst, 2, uint64(parent.n))
	dst = append(dst, parent.bytes()...)
	dst = appendCBORHead(dst, 4, uint64(len(tokens)))
	for _, t := range tokens {
		dst = appendCBORHead(dst, 0, uint64(t))
	}
	if len(extra) == 0 {
		return append(dst, 0xf6)
	}
	dst = appendCBORHead(dst, 4, uint64(len(extra)))
	for _, k := range extra {
		dst = h.appendCBORExtra(dst, k)
	}
	return dst
}

func (h *hasher) appendCBORExtra(dst []byte, k extraKey) []byte {
	if h.tagged {
		n := uint64(2)
		if k.tag != "cache_salt" {
			n = 3
		}
		dst = appendCBORText(appendCBORHead(dst, 4, n), k.tag)
	} else if k.tag == "mm" {
		dst = appendCBORHead(dst, 4, 2)
	}
	dst = appendCBORText(dst, k.text)
	switch {
	case k.tag == "mm" && k.offset < 0:
		dst = appendCBORHead(dst, 1, uint64(-1-k.offset))
	case k.tag == "mm":
		dst = appendCBORHead(dst, 0, uint64(k.offset))
	case k.tag == "lora" && h.tagged:
		dst = appendCBORText(dst, k.path)
	}
	return dst
}

// appendCBORHead appends a CBOR item head (RFC 8949, section 3) in its shortest
// form, as canonical CBOR requires.
func appendCBORHead(dst []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n < 1<<8:
		return append(dst, major|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, major|27), n)
}

func appendCBORText(dst []byte, s string) []byte {
	return append(appendCBORHead(dst, 3, uint64(len(s))), s...)
}
