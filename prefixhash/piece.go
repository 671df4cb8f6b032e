package prefixhash

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// hashPieceCopied hashes up to pieceTokens tokens as little-endian bytes on any
// machine.
func hashPieceCopied(tokens []uint32, seed uint64) uint64 {
	var buf [4 * pieceTokens]byte
	for i, t := range tokens {
		binary.LittleEndian.PutUint32(buf[4*i:], t)
	}
	return xxh3.HashSeed(buf[:4*len(tokens)], seed)
}
