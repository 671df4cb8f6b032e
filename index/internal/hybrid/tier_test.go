package hybrid

import (
	"strings"
	"testing"

	"warmroute/prefixhash"
)

// TestARemovalSettlesOnce: a removal shows that a clear was the GPU's alone. Later removals have
// nothing to settle, so they do not read all blocks again.
func TestARemovalSettlesOnce(t *testing.T) {
	m, _ := newMember(newTestModel(), 1, known)
	hashes := hashesOf(16, 16, 32, 48)
	apply(m, Keying{}, fullEvent.in(0))
	m.Offloaded(&Offload{By: Singles, Hashes: hashes})
	m.Clear(false)
	equal(t, "in doubt", m.tier.doubtful(), true)
	m.Unloaded(0, hashes[:1], true)
	equal(t, "in doubt after a removal", m.tier.doubtful(), false)
	m.tier.settled = 0 // settling would set it again
	m.Unloaded(0, hashes[1:2], true)
	equal(t, "settled again", m.tier.settled > 0, false)
}

// TestTheTiersBudget: blocks of CPU memory beyond it are not kept, and predictions are inexact until
// the memory is cleared.
func TestTheTiersBudget(t *testing.T) {
	m, _ := newMember(newModel(&Budget{Max: 2}), 1, known)
	apply(m, Keying{}, fullEvent.in(0).with(hashesOf(16, 16, 32, 48)))
	why := func() string { trust, _ := m.Trust(); return trust.Why }
	m.Offloaded(&Offload{By: Singles, Hashes: hashesOf(16, 16, 32, 48)})
	equal(t, "kept", m.Below(), 2)
	equal(t, "lost", strings.HasPrefix(why(), "its CPU memory has more blocks"), true)
	m.ClearBelow(true)
	equal(t, "after a clear", why(), "")
}

// TestSettingsTellOfLoading: whether blocks below the GPU are followed depends on the settings in force,
// whether they come before events of such blocks or after them.
func TestSettingsTellOfLoading(t *testing.T) {
	m, _ := newMember(newTestModel(), 1, known)
	apply(m, Keying{}, fullEvent.in(0))
	exact := func() bool { trust, _ := m.Trust(); return trust.Exact }
	loads := *known
	loads.Loads = true
	m.UntrackedBelow()
	equal(t, "without the settings", exact() || !m.Untracked(), false)
	m.Configure(&loads)
	equal(t, "with them", exact() && !m.Untracked(), true)
	m.UntrackedBelow()
	m.Configure(known)
	equal(t, "without them again", exact() || !m.Untracked(), false)
}

// TestHashesDescribeBlocks: once vLLM's hashes are the keys of blocks, no block below the GPU lacks
// a key.
func TestHashesDescribeBlocks(t *testing.T) {
	m, _ := newMember(newTestModel(), 1, known)
	apply(m, Keying{}, fullEvent.in(0))
	m.Offloaded(&Offload{By: Singles, Hashes: hashesOf(16, 16)})
	equal(t, "without a key", len(m.tier.unknown), 1)
	apply(m, Keying{Hash: &prefixhash.VLLM{}, Unit: 8}, seen(1, 8, "sliding_window", 32))
	equal(t, "without a key, by hashes", len(m.tier.unknown), 0)
}
