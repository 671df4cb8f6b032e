package load

import (
	"sync/atomic"

	"warmroute/internal/learned"
)

const (
	// boundEnds is how many ends of matches have their last count kept, 8 bytes each, for one
	// replica. A later end takes the place of an earlier one.
	boundEnds = 2048
	// boundPrior is the number of missing tokens with which counts are taken not to come true
	// again: a window or a state that was missing once is usually stored by the request that
	// missed it.
	boundPrior = 512
	// boundMost is the most tokens that are kept of a count.
	boundMost = 1<<24 - 1
)

// bounds learns how much a replica finds of matches that are upper bounds. A window or a state
// is there or not where a match ends, so the last count is kept by that end, and how much of
// what was missing at an end is missing again is learned over all ends.
type bounds struct {
	counts atomic.Pointer[[boundEnds]atomic.Uint64] // by end: 40 bits of its key, and the counted tokens; nil until one is counted
	again  learned.Ratio                            // of the tokens that were missing before
}

// count returns the tokens counted at an end; false: none are kept.
func (b *bounds) count(end uint64) (tokens int, ok bool) {
	all := b.counts.Load()
	if all == nil {
		return 0, false
	}
	v := all[end%boundEnds].Load()
	return int(v & boundMost), v != 0 && v&^boundMost == end&^boundMost
}

// Bound is what the counts of a replica say of a match that is an upper bound, in tokens.
type Bound struct {
	Unfound   int  // not expected to be found: none until the replica has counted at this end twice
	Unclaimed int  // that the last count at this end did not have; all, if others are kept
	Telling   bool // the last count is not known, or was short of the bound
}

// Bound returns what is known of an upper bound by the key of the block that ends the match.
func (a *Account) Bound(end uint64, bound int) Bound {
	b := &a.bounds
	counted, ok := b.count(end)
	switch {
	case b.counts.Load() == nil:
		return Bound{Telling: true}
	case !ok:
		return Bound{Unclaimed: bound, Telling: true}
	case counted >= bound:
		return Bound{}
	}
	missing := bound - counted
	return Bound{int(float64(missing) * b.again.Of(0, boundPrior)), missing, true}
}

// FoundOf records how many tokens of an upper bound the replica has found.
func (a *Account) FoundOf(end uint64, bound, found int) {
	b := &a.bounds
	found = max(0, min(found, bound, boundMost))
	if was, ok := b.count(end); ok && was < bound {
		missed := float64(bound - was)
		b.again.Add(float64(bound-max(found, was)), missed, missed/loadWindow)
	}
	all := b.counts.Load()
	if all == nil {
		b.counts.CompareAndSwap(nil, new([boundEnds]atomic.Uint64))
		all = b.counts.Load()
	}
	all[end%boundEnds].Store(end&^boundMost | uint64(found))
}
