package index

import (
	"slices"
	"time"
)

// untold are a holder's blocks in a tier below the GPU if no event tells when one is gone: its
// connector announces no removals. A block counts for a time since its last event
// (Options.CPUTTL, Options.StorageTTL). The first removal that the holder announces ends that:
// then its events tell. The holder's lock guards it.
type untold struct {
	told  bool                   // the holder has announced a removal
	last  map[untoldBlock]uint32 // Unix seconds of the last event of each block
	order []untoldStore          // by time
}

type untoldBlock struct {
	group int
	hash  uint64
}

// untoldStore is an event of a block, which a later one makes void.
type untoldStore struct {
	block untoldBlock
	at    uint32
}

// noteUntold records an event that has stored blocks of which no event may tell when they are
// gone. h.mu is held.
func (a *applying) noteUntold(ev *Event) {
	if ev.Tier == TierGPU || ev.Tier >= tiers || a.h.untold[ev.Tier].told {
		return
	}
	if m := a.h.memberOf(ev.Scope.modelKey()); m == nil || !m.Untracked() {
		return
	}
	u, now := &a.h.untold[ev.Tier], uint32(a.x.o.Now().Unix())
	if u.last == nil {
		u.last = map[untoldBlock]uint32{}
	}
	for _, hash := range ev.Hashes {
		b := untoldBlock{ev.Scope.Group, hash}
		was, known := u.last[b]
		if known && was == now {
			continue
		}
		if !known {
			a.x.untold.Add(1)
		}
		u.last[b] = now
		u.order = append(u.order, untoldStore{b, now})
	}
	if len(u.order) > 2*len(u.last)+64 {
		u.order = slices.DeleteFunc(u.order, func(s untoldStore) bool { return u.last[s.block] != s.at })
	}
	for a.x.untold.Load() > int64(a.x.o.MaxBlocks) && a.h.endUntold(ev.Tier, now) > 0 { // the oldest end early
	}
}

// toldRemovals records that the holder announces removals of a tier. h.mu is held.
func (h *holder) toldRemovals(tier Tier) {
	if tier != TierGPU && tier < tiers && !h.untold[tier].told {
		h.forgetUntold(tier)
		h.untold[tier].told = true
	}
}

// forgetUntold forgets the blocks of a tier, which are gone or stay. h.mu is held.
func (h *holder) forgetUntold(tier Tier) {
	h.x.untold.Add(-int64(len(h.untold[tier].last)))
	h.untold[tier] = untold{}
}

// untoldStep bounds the blocks that end while a holder's lock is held.
const untoldStep = 1024

// endUntold removes the blocks of a tier whose last event is from a time, in Unix seconds, or
// before, at most untoldStep of them, and returns how many events it has consumed. h.mu is held.
func (h *holder) endUntold(tier Tier, through uint32) (events int) {
	u := &h.untold[tier]
	for ; events < min(len(u.order), untoldStep) && u.order[events].at <= through; events++ {
		s := u.order[events]
		if u.last[s.block] != s.at {
			continue
		}
		delete(u.last, s.block)
		h.x.untold.Add(-1)
		h.removeUntold(tier, s.block)
	}
	u.order = u.order[events:]
	return events
}

// removeUntold removes all copies of a block in a tier below the GPU. h.mu is held.
func (h *holder) removeUntold(tier Tier, b untoldBlock) {
	for _, sh := range h.shards {
		if sh.key.group != b.group {
			continue
		}
		sh.mu.Lock()
		slot, ok := sh.slots.Of(int32(h.id))
		if ok {
			before := sh.blocks()
			w := removing{sh: sh, slot: slot, tier: tier, res: &Result{}, info: &sh.info[slot], every: true}
			ok = w.removeLower(b.hash)
			h.x.blocks.Add(int64(sh.blocks() - before))
		}
		sh.mu.Unlock()
		if ok {
			return
		}
	}
}

// expireUntold removes the blocks of holders that have not been announced for longer than their
// tier's TTL, in steps, so that ingest never waits for long.
func (x *Index) expireUntold(now time.Time) {
	if x.untold.Load() == 0 {
		return
	}
	x.holders.Range(func(_, v any) bool {
		h := v.(*holder)
		for tier, ttl := range [tiers]time.Duration{TierCPU: x.o.CPUTTL, TierStorage: x.o.StorageTTL} {
			for more := true; more && Tier(tier) != TierGPU; {
				h.mu.Lock()
				more = h.endUntold(Tier(tier), uint32(max(0, now.Add(-ttl).Unix()))) > 0
				h.mu.Unlock()
			}
		}
		return true
	})
}
