package feed

import (
	"testing"

	"warmroute/index"
	"warmroute/internal/fleet"
	"warmroute/internal/vllmsim"
	"warmroute/prefixhash"
)

// TestMixedFleet: replicas of both versions, of different hash algorithms, with
// secret, random and default seeds and with hashes as integers and as bytes meet
// in one key, and one that leaves takes nothing of the others with it.
func TestMixedFleet(t *testing.T) {
	h := newHarness(t)
	secret := "a secret"
	var sims []*vllmsim.Sim
	var replicas []*fleet.Replica
	for _, o := range []vllmsim.Options{
		{},
		{HashAlgorithm: "sha256_cbor", HashBytes: true},
		{HashAlgorithm: "xxhash", HashSeed: &secret},
		{Version: vllmsim.V021, HashAlgorithm: "sha256", Seed: 5},
	} {
		s, r := h.sim(o)
		h.feed.Join(r)
		sims, replicas = append(sims, s), append(replicas, r)
	}
	prompt := make([]uint32, 64)
	for i := range prompt {
		prompt[i] = uint32(1000 + i)
	}
	keys := prefixhash.AppendTokens(nil, prefixhash.TokenRoot("sim", prefixhash.LoRA{}), prompt, 16, nil)
	scope := index.Scope{Model: "sim", Scheme: index.SchemeTokens, BlockSize: 16}
	match := func(addr string) (blocks int) {
		for _, m := range h.index.Lookup(nil, scope, keys) {
			if m.ID == h.index.ID(index.Holder{Replica: addr}) {
				blocks = int(m.Reported)
			}
		}
		return blocks
	}
	for i, s := range sims {
		h.complete(s, 1, 64) // the same ids at each
		h.until("the prompt is known", func() bool { return match(replicas[i].Addr) == 4 })
	}
	if st := h.index.Stats(); st.Blocks != 4 || st.Engines != 16 {
		t.Errorf("%d blocks by %d engine hashes, want 4 by 16: nobody shares a hash", st.Blocks, st.Engines)
	}
	h.feed.Leave(replicas[2])
	h.until("one is gone", func() bool { return match(replicas[2].Addr) == 0 })
	for _, i := range []int{0, 1, 3} {
		if n := match(replicas[i].Addr); n != 4 {
			t.Errorf("replica %d matches %d blocks after another left", i, n)
		}
	}
}
