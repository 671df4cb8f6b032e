package index

import (
	"iter"
	"time"

	"warmroute/index/internal/offheap"
)

// countEvicted counts blocks that a cap has evicted.
func (x *Index) countEvicted(n int) {
	x.evicted.Add(uint64(n))
	x.cut.Store(x.o.Now().UnixNano())
}

// Full returns how many blocks were evicted by a cap since the start, if one was within the last
// time; 0 otherwise.
func (x *Index) Full(within time.Duration) (evicted uint64) {
	if x.o.Now().UnixNano()-x.cut.Load() < int64(within) {
		evicted = x.evicted.Load()
	}
	return evicted
}

// OffHeap returns how many bytes all indexes of this process have mapped outside the Go heap.
func OffHeap() int { return int(offheap.Mapped()) }

// Scopes yields every scope and its distinct blocks, in each tier by itself; drained ones have none.
func (x *Index) Scopes() iter.Seq2[Scope, int] {
	return func(yield func(Scope, int) bool) {
		for s, ks := range *x.keyspaces.Load() {
			blocks := 0
			ks.sh.mu.Lock()
			if !ks.dropped && !x.closed.Load() {
				blocks = ks.blocks()
			}
			ks.sh.mu.Unlock()
			if !yield(s, blocks) {
				return
			}
		}
	}
}

// Holdings returns how many GPU blocks h holds, in all scopes.
func (x *Index) Holdings(h Holder) int { return x.TierHoldings(h, TierGPU) }

// HoldingsOf returns how many GPU blocks h holds of the tenants and models wanted.
func (x *Index) HoldingsOf(h Holder, wanted func(tenant, model string) bool) int {
	if holder := x.known(h); holder != nil {
		return holder.holdings(wanted)[TierGPU]
	}
	return 0
}

// TierHoldings returns how many blocks h holds in a tier, in all scopes.
func (x *Index) TierHoldings(h Holder, t Tier) int {
	if holder := x.known(h); holder != nil && t < tiers {
		return holder.holdings(nil)[t]
	}
	return 0
}

// Holders yields every known holder and its number.
func (x *Index) Holders() iter.Seq2[HolderID, Holder] {
	return func(yield func(HolderID, Holder) bool) {
		for h := range x.all() {
			if !yield(h.id, h.self) {
				return
			}
		}
	}
}
