package hashtable

import (
	"math/rand/v2"
	"testing"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/offheap"
)

// memory is a clock and a pool, closed with the test.
type memory struct {
	clock epoch.Clock
	pool  offheap.Pool
}

func newMemory(t *testing.T) *memory {
	m := new(memory)
	m.clock.Init()
	m.pool.Init(&m.clock)
	t.Cleanup(m.pool.Close)
	return m
}

// ungolden is Golden's inverse modulo 2^64: the key of a hash that is chosen.
const ungolden = 0xf1de83e19937733d

// keyLike is a key with a fingerprint, a tag and the bits no index keeps.
func keyLike(print, tag, rest uint64) uint64 {
	return (print<<PlaceBits | tag<<(PlaceBits-7) | rest) * ungolden
}

func TestKeysCanBeChosen(t *testing.T) {
	f := fingerprintOf(keyLike(0x123456, 0x2a, 77) * Golden)
	if f.print != 0x123456 || f.tag != 0x2a|0x80 {
		t.Fatalf("%x and %x, want what was chosen", f.print, f.tag)
	}
}

// collidingKeys returns keys of several kinds, which differ in how many of an index's
// bits of a key are equal.
func collidingKeys(n int) map[string][]uint64 {
	rng := rand.New(rand.NewPCG(8, 8))
	kinds := map[string][]uint64{}
	for i := range uint64(n) {
		kinds["random"] = append(kinds["random"], rng.Uint64())
		kinds["one home"] = append(kinds["one home"], keyLike(7, i%128, i))
		kinds["all equal but what is not kept"] = append(kinds["all equal but what is not kept"], keyLike(1<<23, 5, i))
		kinds["tags one bit apart"] = append(kinds["tags one bit apart"], keyLike(1<<20, 6|i&1, i))
		kinds["few homes, the last one too"] = append(kinds["few homes, the last one too"], keyLike(1<<24-1-i%3, i%5, i))
		kinds["equal tags"] = append(kinds["equal tags"], keyLike(uint64(rng.IntN(1<<24)), 1, i))
	}
	return kinds
}
