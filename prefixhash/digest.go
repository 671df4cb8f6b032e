package prefixhash

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Digest is a block's hash as vLLM computes or publishes it: 32 bytes (SHA-256),
// 16 bytes (XXH3-128), or, from publishers of integers, only the last 8 of them.
// It is a comparable value; the zero value is no digest.
type Digest struct {
	b [32]byte
	n uint8
}

// ParseDigest reads a published hash of 8, 16 or 32 bytes.
func ParseDigest(b []byte) (Digest, error) {
	if n := len(b); n != 8 && n != 16 && n != 32 {
		return Digest{}, fmt.Errorf("block hash: %d bytes, want 8, 16 or 32", len(b))
	}
	d := Digest{n: uint8(len(b))}
	copy(d.b[:], b)
	return d, nil
}

// Key returns the low 64 bits, big-endian: the integer vLLM publishes.
func (d Digest) Key() Key {
	if d.n < 8 {
		return 0
	}
	return Key(binary.BigEndian.Uint64(d.b[d.n-8 : d.n]))
}

// Full reports whether d has all bytes: only then can it be a parent.
func (d Digest) Full() bool { return d.n >= 16 }

// String returns the digest in hex.
func (d Digest) String() string { return hex.EncodeToString(d.b[:d.n]) }
