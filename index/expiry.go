package index

import (
	"container/heap"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// expiry has the blocks of a holder that end at a time: those of a reporter that announces no
// removals (Event.Until), and those in a tier below the GPU if no event tells when one is gone,
// because its connector announces no removals. The latter count for a time since their last event
// (Options.CPUTTL, Options.StorageTTL), until the holder announces a removal of the tier: then its
// events tell. The holder's lock guards it.
type expiry struct {
	told  [tiers]bool        // the holder has announced a removal of the tier
	ends  map[expiring]int64 // Unix nanoseconds
	queue deadlines          // by time; an entry is void if its block ends at another one
	first atomic.Int64       // the end of the first of the queue; 0: it is empty
}

// expiring is a block of a holder in a tier.
type expiring struct {
	ks   *keyspace
	tier Tier
	hash uint64
}

type deadline struct {
	block expiring
	at    int64
}

type deadlines []deadline

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at < d[j].at }
func (d deadlines) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *deadlines) Push(v any)        { *d = append(*d, v.(deadline)) }

func (d *deadlines) Pop() any {
	old := *d
	*d = old[:len(old)-1]
	return old[len(old)-1]
}

// endOf returns when the blocks of an event end, in Unix nanoseconds; 0: they do not. Ends are
// whole tenths of a second, so that few are apart. h.mu is held.
func (a *applying) endOf(ev *Event) int64 {
	end := ev.Until
	if ev.Tier != TierGPU {
		if m := a.h.memberOf(ev.Scope.modelKey()); a.h.told[ev.Tier] || m == nil || !m.Untracked() {
			return 0
		}
		end = a.x.o.Now().Add([tiers]time.Duration{TierCPU: a.x.o.CPUTTL, TierStorage: a.x.o.StorageTTL}[ev.Tier])
	}
	if end.IsZero() {
		return 0
	}
	return end.Add(tenth - 1).Truncate(tenth).UnixNano()
}

// expire lets a block end at a time; one that the holder had already, not before it would have.
// h.mu is held.
func (h *holder) expire(b expiring, at int64, had bool) {
	was, known := h.ends[b]
	if had && was >= at {
		return
	}
	if !known {
		h.x.expiring.Add(1)
	}
	if h.ends == nil {
		h.ends = map[expiring]int64{}
	}
	if h.ends[b] = at; was != at {
		heap.Push(&h.queue, deadline{b, at})
	}
	if len(h.queue) > 2*len(h.ends)+64 {
		h.dropVoid()
	}
	if h.noteFirst() {
		h.x.requestSweep()
	}
}

// dropVoid takes void ends out of the queue. h.mu is held.
func (h *holder) dropVoid() {
	h.queue = slices.DeleteFunc(h.queue, func(d deadline) bool { return h.ends[d.block] != d.at })
	heap.Init(&h.queue)
}

// noteFirst publishes the first end, and reports whether it comes earlier than before.
func (h *holder) noteFirst() (earlier bool) {
	first := int64(0)
	if len(h.queue) > 0 {
		first = h.queue[0].at
	}
	was := h.first.Swap(first)
	return first != 0 && (was == 0 || first < was)
}

// boundExpiry ends the holder's first blocks early if there are too many of all holders. h.mu is
// held.
func (h *holder) boundExpiry() {
	for h.x.expiring.Load() > int64(h.x.o.MaxBlocks) && len(h.queue) > 0 {
		h.endFirst()
		h.noteFirst()
	}
}

// toldRemovals records that the holder announces removals of a tier. h.mu is held.
func (h *holder) toldRemovals(tier Tier) {
	if tier != TierGPU && tier < tiers && !h.told[tier] {
		h.told[tier] = true
		h.stay(func(b expiring) bool { return b.tier == tier })
	}
}

// stay lets some blocks not end: they stay, or are gone. h.mu is held.
func (h *holder) stay(some func(expiring) bool) {
	before := len(h.ends)
	maps.DeleteFunc(h.ends, func(b expiring, _ int64) bool { return some(b) })
	h.x.expiring.Add(int64(len(h.ends) - before))
	h.dropVoid()
	h.noteFirst()
}

// expireStep bounds the blocks that end while a holder's lock is held.
const expireStep = 1024

// endThrough ends the blocks whose time has come, at most expireStep of them, and reports whether
// more may be left.
func (h *holder) endThrough(now int64) (more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for range expireStep {
		if len(h.queue) == 0 || h.queue[0].at > now {
			h.noteFirst()
			return false
		}
		h.endFirst()
	}
	return true
}

// endFirst ends the first block of the queue. h.mu is held.
func (h *holder) endFirst() {
	d := heap.Pop(&h.queue).(deadline)
	if h.ends[d.block] != d.at {
		return
	}
	delete(h.ends, d.block)
	h.x.expiring.Add(-1)
	ks := d.block.ks
	sh := ks.sh
	sh.mu.Lock()
	defer sh.mu.Unlock()
	slot, ok := ks.slotOf(h)
	if !ok {
		return
	}
	before := ks.blocks()
	w := removing{sh: sh, slot: slot, tier: d.block.tier, res: &Result{}, info: &sh.info[slot], every: true}
	w.removeFrom(ks, d.block.hash)
	h.x.blocks.Add(int64(ks.blocks() - before))
}

// expire ends the blocks of all holders whose time has come.
func (x *Index) expire() {
	now := x.o.Now().UnixNano()
	for h := range x.all() {
		for first := h.first.Load(); first != 0 && first <= now && h.endThrough(now); {
		}
	}
}

// untilExpiry returns the time until the next block ends.
func (x *Index) untilExpiry() time.Duration {
	next := x.o.Now().Add(x.o.SweepEvery).UnixNano()
	for h := range x.all() {
		if first := h.first.Load(); first != 0 {
			next = min(next, first)
		}
	}
	return time.Duration(next - x.o.Now().UnixNano())
}
