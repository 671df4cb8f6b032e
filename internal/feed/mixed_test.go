package feed

import (
	"testing"

	"warmroute/index"
	"warmroute/internal/fleet"
	"warmroute/prefixhash"
)

// TestMixedFleet: replicas of both versions, of different hash algorithms, with
// secret, random and default seeds and with hashes as integers and as bytes meet
// in one key, and a replica that leaves takes nothing of the others with it.
func TestMixedFleet(t *testing.T) {
	h := newHarness(t)
	secret := "a secret"
	replicas := []*fleet.Replica{
		h.sim(nil),
		h.sim(nil, "-hash", "sha256_cbor", "-hash-bytes"),
		h.sim(&secret, "-hash", "xxhash", "-hash-seed", secret),
		h.sim(nil, "-version", "0.21.0", "-hash", "sha256", "-seed", "5"),
	}
	for _, r := range replicas {
		h.feed.Join(r)
	}
	prompt := make([]uint32, 64)
	for i := range prompt {
		prompt[i] = uint32(1000 + i)
	}
	keys := prefixhash.AppendTokens(nil, prefixhash.TokenRoot("sim", prefixhash.LoRA{}), prompt, prefixhash.Blocks{Size: 16}, nil)
	scope := index.Scope{Model: "sim", Scheme: index.SchemeTokens, BlockSize: 16}
	match := func(addr string) (blocks int) {
		for _, m := range h.index.Lookup(nil, scope, keys) {
			if m.ID == h.index.ID(index.Holder{Replica: addr}) {
				blocks = int(m.Blocks)
			}
		}
		return blocks
	}
	for _, r := range replicas {
		h.complete(r, 1, 64) // the same ids at each
		h.until("the prompt is known", func() bool { return match(r.Addr) == 4 })
	}
	for _, n := range h.index.Scopes() {
		if n != 4 {
			t.Errorf("%d blocks, want the 4 that all replicas share", n)
		}
	}
	h.feed.Leave(replicas[2])
	h.until("one is gone", func() bool { return match(replicas[2].Addr) == 0 })
	for _, i := range []int{0, 1, 3} {
		if n := match(replicas[i].Addr); n != 4 {
			t.Errorf("replica %d matches %d blocks after another left", i, n)
		}
	}
}
