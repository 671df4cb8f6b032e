package index

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/index/internal/hybrid"
)

// holder is the index's state of one Holder while its replica is known. Lock order:
// holder.mu, Index.mu, shard.mu.
type holder struct {
	x    *Index
	self Holder
	id   HolderID

	mu          sync.Mutex
	incarnation uint64 // 0: not begun, expired or removed
	shards      []*shard
	hosts       atomic.Pointer[[]*memberHost] // by model; replaced by a copy
	doubt       atomic.Pointer[string]        // see Batch.Doubt; nil: there is none
	removals    removals
	expiry
	undecided bool // the last AllBlocksCleared may be of the GPU or of CPU memory
	followed
	current
}

// followed says since when the index has followed a holder without a loss.
type followed struct {
	since int64 // Unix nanoseconds: when it was begun, or lost its blocks last
	loss  Loss  // what happened then
}

// current is of the batch that is being applied.
type current struct {
	last   keyspaceMemo
	events []hybrid.Event
	result Result
}

type modelKey struct{ tenant, model string }

func (s *Scope) modelKey() modelKey { return modelKey{s.Tenant, s.Model} }

func (k *shardKey) modelKey() modelKey { return modelKey{k.tenant, k.model} }

func (s *Scope) shardKey() shardKey { return shardKey{s.Tenant, s.Model, s.Scheme, s.Group} }

const idsPerPage = 256

// idPage holds the fields of HolderIDs that lookups read.
type idPage struct {
	holder     [idsPerPage]atomic.Pointer[holder]
	lastReport [idsPerPage]atomic.Int64 // Unix nanoseconds: when the holder last reported
}

// minFreeIDs ids must be free before one is used again, oldest first, so that a reader
// of an old fleet snapshot does not take one replica for another.
const minFreeIDs = 4096

func (x *Index) known(h Holder) *holder {
	if v, ok := x.holders.Load(h); ok {
		return v.(*holder)
	}
	return nil
}

// all yields the holders that the index knows.
func (x *Index) all() iter.Seq[*holder] {
	return func(yield func(*holder) bool) {
		x.holders.Range(func(_, v any) bool { return yield(v.(*holder)) })
	}
}

// intern returns the holder. It makes an absent one.
func (x *Index) intern(self Holder) *holder {
	if h := x.known(self); h != nil {
		return h
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.known(self); h != nil {
		return h
	}
	h := &holder{x: x, self: self}
	h.removals.total = &x.removals
	if len(x.freeIDs) > minFreeIDs {
		h.id = x.freeIDs[0]
		x.freeIDs = x.freeIDs[1:]
	} else {
		h.id = x.nextID
		x.nextID++
	}
	pages := *x.pages.Load()
	if int(h.id)/idsPerPage >= len(pages) {
		pages = append(pages, new(idPage))
		x.pages.Store(&pages)
	}
	page := pages[h.id/idsPerPage]
	page.lastReport[h.id%idsPerPage].Store(x.o.Now().UnixNano())
	page.holder[h.id%idsPerPage].Store(h)
	x.holders.Store(self, h)
	return h
}

func (x *Index) byID(id HolderID) *holder {
	pages := *x.pages.Load()
	if id < 0 || int(id)/idsPerPage >= len(pages) {
		return nil
	}
	return pages[id/idsPerPage].holder[id%idsPerPage].Load()
}

func (x *Index) noteReport(id HolderID, now int64) {
	(*x.pages.Load())[id/idsPerPage].lastReport[id%idsPerPage].Store(now)
}

// LastReport returns when a holder of a match has begun, or sent its last batch.
func (x *Index) LastReport(id HolderID) time.Time {
	return time.Unix(0, (*x.pages.Load())[id/idsPerPage].lastReport[id%idsPerPage].Load())
}

// ID returns the number of h in matches, given at the first call and kept until Remove.
// It takes no lock that ingest holds.
func (x *Index) ID(h Holder) HolderID { return x.intern(h).id }

// HolderOf returns the holder with a number.
func (x *Index) HolderOf(id HolderID) (Holder, bool) {
	if h := x.byID(id); h != nil {
		return h.self, true
	}
	return Holder{}, false
}

// Begin drops h's blocks, at once for lookups that start later, and starts a new
// incarnation. Batches of earlier incarnations are refused from then on.
func (x *Index) Begin(self Holder) (incarnation uint64) {
	h := x.intern(self)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clear(nil)
	h.undecided = false
	h.endMembers()
	h.doubt.Store(nil)
	if h.since = x.o.Now().UnixNano(); h.incarnation != 0 {
		h.loss = LossBegun
	}
	h.incarnation = x.incarnations.Add(1)
	x.noteReport(h.id, h.since)
	return h.incarnation
}

// Remove drops a replica with all its ranks, at once for lookups that start later.
// Its batches are refused until Begin.
func (x *Index) Remove(replica string) {
	for h := range x.all() {
		if h.self.Replica != replica {
			continue
		}
		h.mu.Lock()
		h.clear(nil)
		h.endMembers()
		h.removals.drop()
		h.incarnation = 0
		x.mu.Lock() // within h.mu: a reporter may begin h again as soon as that is free
		if x.holders.CompareAndDelete(h.self, h) {
			(*x.pages.Load())[h.id/idsPerPage].holder[h.id%idsPerPage].Store(nil)
			x.freeIDs = append(x.freeIDs, h.id)
			x.forgetShare(replica)
		}
		x.mu.Unlock()
		h.mu.Unlock()
	}
}

// clear makes the holder's blocks of a part invisible and returns how many were on GPU; the
// sweeper removes them later. The cache groups of a model have one state for all schemes, so of
// a model with several it takes every scheme. h.mu is held.
func (h *holder) clear(of *Part) (blocks int) {
	h.shards = slices.DeleteFunc(h.shards, func(sh *shard) bool {
		m := h.memberOf(sh.key.modelKey())
		if !of.covers(sh.key) && (m == nil || !m.Grouped() || !of.coversModel(sh.key.modelKey())) {
			return false
		}
		sh.mu.Lock()
		defer sh.mu.Unlock()
		if slot, ok := sh.slots.Of(int32(h.id)); ok {
			blocks += sh.info[slot].blocks[TierGPU]
			sh.hybrid.End(slot)
			sh.slots.Kill(slot)
		}
		return true
	})
	if len(h.shards) == 0 {
		h.removals.forget()
		h.told = [tiers]bool{}
		h.stay(func(expiring) bool { return true })
	}
	h.x.requestSweep()
	return blocks
}

// has reports whether the holder may have blocks of a part in a model. h.mu is held.
func (h *holder) has(of *Part, k modelKey) bool {
	inModel := func(sh *shard) bool { return sh.key.modelKey() == k }
	if !slices.ContainsFunc(h.shards, inModel) {
		return of.coversModel(k)
	}
	return slices.ContainsFunc(h.shards, func(sh *shard) bool { return inModel(sh) && of.covers(sh.key) })
}

// holdings returns the blocks a holder has in each tier, of the tenants and models
// wanted; nil wants all.
func (h *holder) holdings(wanted func(tenant, model string) bool) (n [layers]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.members() {
		if wanted == nil || wanted(c.key.tenant, c.key.model) {
			n[TierCPU] += c.member.Below()
		}
	}
	for sh, slot := range h.in(func(k *shardKey) bool { return wanted == nil || wanted(k.tenant, k.model) }) {
		for tier, blocks := range sh.info[slot].blocks {
			n[tier] += blocks
		}
	}
	return n
}

// in yields some of the shards with blocks of the holder and its slot there, each with the shard's
// lock held. h.mu is held.
func (h *holder) in(some func(*shardKey) bool) iter.Seq2[*shard, int] {
	return func(yield func(*shard, int) bool) {
		for _, sh := range h.shards {
			if !some(&sh.key) {
				continue
			}
			sh.mu.Lock()
			slot, ok := sh.slots.Of(int32(h.id))
			more := !ok || yield(sh, slot)
			sh.mu.Unlock()
			if !more {
				return
			}
		}
	}
}
