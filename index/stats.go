package index

import (
	"iter"
	"time"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/offheap"
)

// Stats count the blocks, holders and memory of the index, and refused blocks.
type Stats struct {
	Scopes  int
	Holders int    // known holders
	Blocks  int    // distinct blocks kept, all scopes and tiers
	Hashes  int    // hashes of blocks kept, each for one holder
	Nodes   int    // stretches of blocks
	Leases  int    // speculative and leased entries
	Grouped int    // blocks of holders with several cache groups, each holder's by itself
	Sets    int    // distinct sets of two or more holders
	Bytes   int    // memory of all this, without Go's own overhead
	OffHeap int    // of Bytes: the memory that all indexes of this process have mapped outside the Go heap
	Dropped uint64 // blocks not indexed since the start
	Evicted uint64 // blocks evicted by a cap since the start
}

// Full returns how many blocks were evicted by a cap since the start, if one was within the last
// time; 0 otherwise.
func (x *Index) Full(within time.Duration) (evicted uint64) {
	if x.o.Now().UnixNano()-x.cut.Load() < int64(within) {
		evicted = x.evicted.Load()
	}
	return evicted
}

// Stats counts everything. It takes the writers' locks one after the other.
func (x *Index) Stats() Stats {
	s := Stats{
		Scopes: len(*x.keyspaces.Load()), Leases: x.expiries.Len(), Grouped: x.budget.Used(), OffHeap: int(offheap.Mapped()),
		Dropped: x.dropped.Load(), Evicted: x.evicted.Load(),
	}
	x.holders.Range(func(_, v any) bool {
		s.Holders++
		s.Bytes += v.(*holder).memberBytes()
		return true
	})
	for _, m := range *x.models.Load() {
		s.Bytes += m.Bytes()
	}
	for _, sh := range x.allShards() {
		sh.mu.Lock()
		s.Sets += sh.sets.Len()
		s.Bytes += sh.nodes.Bytes() + sh.sets.Bytes() + sh.hybrid.Bytes()
		s.Nodes += sh.nodes.Len()
		for i := range sh.info {
			if sh.slots.Live.Has(i) {
				s.Hashes += sh.info[i].hashes()
				s.Bytes += sh.info[i].bytes()
			}
		}
		for _, ks := range sh.keyspaces {
			if ks == nil {
				continue
			}
			s.Blocks += ks.distinct()
			s.Bytes += ks.tree.Bytes()
			for _, t := range ks.flats() {
				s.Bytes += t.Bytes()
			}
		}
		sh.mu.Unlock()
	}
	return s
}

// OffHeap returns how many bytes all indexes of this process have mapped outside the Go heap.
func OffHeap() int { return int(offheap.Mapped()) }

// memberBytes returns the memory of the holder's blocks in cache groups.
func (h *holder) memberBytes() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.members() {
		n += c.member.Bytes()
	}
	return n
}

// hashes returns how many hashes a holder uses.
func (i *slotInfo) hashes() int {
	n := i.gpu.Len()
	for _, l := range i.lower {
		l.Each(func(hash, _ uint64) bool {
			if i.gpu.Find(hash) == 0 {
				n++
			}
			return true
		})
	}
	return n
}

// bytes returns the memory of a holder's hashes.
func (i *slotInfo) bytes() int {
	n := i.gpu.Bytes()
	for _, l := range i.lower {
		n += l.Bytes()
	}
	return n
}

// distinct returns how many keys have a holder in some tier. sh.mu is held.
func (ks *keyspace) distinct() int {
	flats := ks.flats()
	n := ks.tree.Blocks()
	for i, t := range flats {
		for s := range t.All() {
			if !inAnyOf(flats[:i], s.Key()) {
				n++
			}
		}
	}
	if len(flats) == 0 || n == ks.tree.Blocks() {
		return n
	}
	for page := range ks.sh.nodes.Pages() { // nodes may have some of these keys too
		for node := range ks.sh.nodes.Page(page) {
			if node.Tree != ks.index {
				continue
			}
			for _, key := range node.Keys {
				if inAnyOf(flats, key) {
					n--
				}
			}
		}
	}
	return n
}

func inAnyOf(tables []*hashtable.Table, key uint64) bool {
	for _, t := range tables {
		if s := t.Find(key); s != nil && s.Value().Set() != 0 {
			return true
		}
	}
	return false
}

// ScopeStats are the counts of one scope.
type ScopeStats struct {
	Scope  Scope
	Blocks int // distinct blocks, all tiers
	Leases int // entries with a deadline: reported and speculative ones

	ReportedLeases int // of Leases: entries of Report
}

// Scopes yields the counts of every scope, drained ones with zeros.
func (x *Index) Scopes() iter.Seq[ScopeStats] {
	return func(yield func(ScopeStats) bool) {
		for s, ks := range *x.keyspaces.Load() {
			ks.sh.mu.Lock()
			st := ScopeStats{Scope: s}
			if !ks.dropped && !x.closed.Load() {
				st.Blocks = ks.distinct()
			}
			ks.sh.mu.Unlock()
			for kind, l := range ks.allLeases {
				n := l.Len()
				st.Leases += n
				if kind == leaseReported {
					st.ReportedLeases = n
				}
			}
			if !yield(st) {
				return
			}
		}
	}
}

// Reported yields the scopes with blocks that holders have reported. It counts none, for callers
// that cannot wait for that.
func (x *Index) Reported() iter.Seq[Scope] {
	return func(yield func(Scope) bool) {
		for s, ks := range *x.keyspaces.Load() {
			ks.sh.mu.Lock()
			some := !ks.dropped && ks.blocks() > 0
			ks.sh.mu.Unlock()
			l := ks.leases[leaseReported].Load()
			if (some || l != nil && l.Len() > 0) && !yield(s) {
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
		x.holders.Range(func(_, v any) bool {
			h := v.(*holder)
			return yield(h.id, h.self)
		})
	}
}
