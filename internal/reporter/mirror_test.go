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

func (m *mirrored) want(t *testing.T, want string, held int) {
	t.Helper()
	got := strings.Join(m.said, " ")
	if m.said = nil; got != want || len(m.held) != held || len(m.all()) != held {
		t.Errorf("%q with %d held, want %q with %d", got, len(m.held), want, held)
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

// TestMirrorWithoutParent: blocks whose parent is not held are dropped and counted, and held
// if they are told again behind it.
func TestMirrorWithoutParent(t *testing.T) {
	m := mirrored{mirror: newMirror()}
	if n := m.event(tokened(1, 2, 3)); n != 2 {
		t.Errorf("%d dropped, want 2", n)
	}
	m.event(removed(3)) // which was dropped
	m.event(tokened(0, 1))
	m.want(t, "+1@1", 1)
	if n := m.event(tokened(1, 2, 3)); n != 0 {
		t.Errorf("%d dropped behind their parent", n)
	}
	m.want(t, "+2@2 +3@3", 3)
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
	m.want(t, "+1@1 +1@1", 2)
	m.event(removed(1))
	m.want(t, "", 2) // one of two copies
	m.event(in(index.TierCPU, removed(1)))
	m.want(t, "-1", 1)
	m.event(tokened(1, 2))
	m.want(t, "+2@2", 2)
	m.event(in(index.TierCPU, tokened(0, 1)))
	m.event(removed(1))
	m.event(tokened(1, 3))
	m.want(t, "+1@1 -1 +3@2", 3)
	m.event(in(index.TierCPU, removed(1)))
	m.event(tokened(1, 4))
	m.want(t, "-1", 2)
	m.clear()
	m.want(t, "", 0)
	m.event(stored(77, 10)) // keyed by the engine's own hash: its place in the prompt is not known
	m.event(stored(10, 11))
	m.want(t, "+10@0 +11@0", 2)
}

// TestMirrorStoresByHash: an event that does not describe its blocks announces those that
// others have announced under its hashes.
func TestMirrorStoresByHash(t *testing.T) {
	m := mirrored{mirror: newMirror()}
	m.event(tokened(0, 1, 2))
	m.want(t, "+1@1 +2@2", 2)
	lower := stored(0, 2, 3)
	lower.ByHash, lower.Tier = true, index.TierCPU
	if dropped := m.event(lower); dropped != 1 {
		t.Errorf("%d of the blocks are not known, want 1", dropped)
	}
	m.want(t, "+2@2", 3)
	for _, b := range m.all() {
		if b.id.hash == 2 && b.key != m.byHash[hashID{2, 0}].key {
			t.Error("a block has two keys")
		}
	}
}
