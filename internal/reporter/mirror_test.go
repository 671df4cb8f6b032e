package reporter

import (
	"fmt"
	"strings"
	"testing"

	"warmroute/index"
	"warmroute/prefixhash"
)

// mirrored records the blocks that a mirror reports as added and gone, by
// vLLM's hash.
type mirrored struct {
	*mirror
	said []string
}

func (m *mirrored) event(e index.Event) (dropped int) {
	if e.Kind == index.Removed {
		m.remove(e, func(b *block) { m.said = append(m.said, fmt.Sprintf("-%d", b.id.hash)) })
		return 0
	}
	return m.store(e, false, func(b *block) { m.said = append(m.said, fmt.Sprintf("+%d@%d", b.id.hash, b.depth)) })
}

func (m *mirrored) want(t *testing.T, want string, held, parked int) {
	t.Helper()
	got := strings.Join(m.said, " ")
	if m.said = nil; got != want || len(m.held) != held || m.parked != parked || len(m.all()) != held {
		t.Errorf("%q with %d held and %d waiting, want %q with %d and %d", got, len(m.held), m.parked, want, held, parked)
	}
	if parked == 0 && len(m.orphans) != 0 {
		t.Errorf("nothing waits, but the places of %d parents are kept", len(m.orphans))
	}
}

// tokened are blocks that are keyed by their contents.
func tokened(parent uint64, hashes ...uint64) index.Event {
	e := stored(parent, hashes...)
	for _, h := range hashes {
		e.Content = append(e.Content, prefixhash.Content(h))
	}
	return e
}

// TestMirrorParks: blocks whose parent is not known wait for it; blocks that
// are removed meanwhile do not come, nor do blocks chained on them.
func TestMirrorParks(t *testing.T) {
	m := mirrored{mirror: newMirror()}
	m.event(tokened(1, 2, 3))
	m.event(tokened(1, 4))
	m.event(tokened(3, 5))
	m.want(t, "", 0, 4)
	m.event(removed(9)) // which was never stored
	other := removed(3)
	other.Tier = index.TierCPU
	m.event(other)
	other = removed(3)
	other.Scope.Group = 1
	m.event(other)
	m.want(t, "", 0, 4)
	m.event(removed(3)) // 5 has nothing to wait for, but that is not known
	m.want(t, "", 0, 3)
	m.event(tokened(0, 1))
	m.want(t, "+1@1 +2@2 +4@2", 3, 1)
	m.event(tokened(2, 3))
	m.want(t, "+3@3 +5@4", 5, 0)
	m.event(tokened(7, 8))
	m.event(removed(8))
	m.want(t, "", 5, 0)
}

// TestMirrorIsBounded: waiting blocks beyond the bound are dropped, and
// counted.
func TestMirrorIsBounded(t *testing.T) {
	m := mirrored{mirror: newMirror()}
	var many []uint64
	for i := range uint64(orphanLimit - 1) {
		many = append(many, 100+i)
	}
	if n := m.event(tokened(1, many...)); n != 0 {
		t.Errorf("%d dropped below the bound", n)
	}
	if n := m.event(tokened(1, 5, 6)); n != 2 || m.parked != orphanLimit-1 {
		t.Errorf("%d dropped, %d wait", n, m.parked)
	}
	if n := m.event(tokened(1, 5)); n != 0 || m.parked != orphanLimit {
		t.Errorf("%d dropped at the bound, %d wait", n, m.parked)
	}
	if n := m.event(tokened(1, 6)); n != 1 {
		t.Errorf("%d dropped above it", n)
	}
}

// TestMirrorTiers: a block is a parent as long as some tier holds it.
func TestMirrorTiers(t *testing.T) {
	in := func(tier index.Tier, e index.Event) index.Event {
		e.Tier = tier
		return e
	}
	m := mirrored{mirror: newMirror()}
	m.event(tokened(0, 1))
	m.event(in(index.TierCPU, tokened(0, 1)))
	m.event(tokened(0, 1))
	m.want(t, "+1@1 +1@1", 2, 0)
	m.event(removed(1))
	m.want(t, "", 2, 0) // one of two copies
	m.event(in(index.TierCPU, removed(1)))
	m.want(t, "-1", 1, 0)
	m.event(tokened(1, 2))
	m.want(t, "+2@2", 2, 0)
	m.event(in(index.TierCPU, tokened(0, 1)))
	m.event(removed(1))
	m.event(tokened(1, 3))
	m.want(t, "+1@1 -1 +3@2", 3, 0)
	m.event(in(index.TierCPU, removed(1)))
	m.event(tokened(1, 4))
	m.want(t, "-1", 2, 1)
	m.clear()
	m.want(t, "", 0, 0)
	m.event(stored(77, 10)) // keyed by the engine's own hash: its place in the prompt is not known
	m.event(stored(10, 11))
	m.want(t, "+10@0 +11@0", 2, 0)
}

// TestMirrorStoresByHash: an event that does not describe its blocks announces those that
// others have announced under its hashes.
func TestMirrorStoresByHash(t *testing.T) {
	m := mirrored{mirror: newMirror()}
	m.event(tokened(0, 1, 2))
	m.want(t, "+1@1 +2@2", 2, 0)
	lower := stored(0, 2, 3)
	lower.ByHash, lower.Tier = true, index.TierCPU
	if dropped := m.event(lower); dropped != 1 {
		t.Errorf("%d of the blocks are not known, want 1", dropped)
	}
	m.want(t, "+2@2", 3, 0)
	for _, b := range m.all() {
		if b.id.hash == 2 && b.key != m.byHash[hashID{2, 0}].key {
			t.Error("a block has two keys")
		}
	}
}
