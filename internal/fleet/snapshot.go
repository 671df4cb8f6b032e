package fleet

import (
	"slices"
	"strings"
)

// NewSnapshot returns a settled snapshot of the given replicas, for a fleet that is
// known in advance: replays, explanations and tests.
func NewSnapshot(replicas ...*Replica) *Snapshot {
	sorted := slices.Clone(replicas)
	slices.SortFunc(sorted, func(a, b *Replica) int { return strings.Compare(a.Addr, b.Addr) })
	return newSnapshot(sorted, true)
}
