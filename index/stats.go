package index

import "iter"

// Stats are counts of what the index keeps and refused.
type Stats struct {
	Scopes  int
	Holders int    // replicas' ranks known
	Blocks  int    // distinct blocks kept, all scopes and tiers
	Engines int    // engine hashes kept
	Orphans int    // blocks that wait for their parent
	Leases  int    // speculative, learned and leased entries
	Sets    int    // distinct sets of two or more holders
	Bytes   int    // memory of all this, without Go's own overhead
	OffHeap int    // of Bytes, what all indexes of this process have mapped outside the Go heap
	Dropped uint64 // blocks not indexed since the start
	Evicted uint64 // blocks evicted by a cap since the start
}

// Stats counts everything. It takes the writers' locks one after the other.
func (x *Index) Stats() Stats {
	s := Stats{
		Scopes: len(*x.spaces.Load()), Leases: int(x.leased.Load()), OffHeap: int(mapped.Load()),
		Dropped: x.dropped.Load(), Evicted: x.evicted.Load(),
	}
	x.holders.Range(func(any, any) bool { s.Holders++; return true })
	for _, d := range x.allDomains() {
		d.mu.Lock()
		s.Engines += d.engines.count()
		s.Orphans += d.orphans.blocks
		s.Sets += len(d.sets.byPrint)
		s.Bytes += d.engines.bytes() + d.sets.bytes()
		for _, sp := range d.spaces {
			if sp == nil {
				continue
			}
			s.Blocks += sp.distinct()
			for _, t := range sp.tables() {
				s.Bytes += t.bytes()
			}
			for _, list := range sp.kids {
				s.Bytes += 8*cap(list) + 40
			}
		}
		d.mu.Unlock()
	}
	return s
}

// distinct is how many keys somebody holds in some tier. d.mu is held.
func (sp *space) distinct() int {
	n := sp.gpu.count()
	for i, t := range sp.tables()[1:] {
		for q := range t.parts {
			p := t.parts[q].Load()
			for k := range p.n {
				s := p.at(k)
				if s.val&valSet != 0 && !sp.before(i+1, s.key) {
					n++
				}
			}
		}
	}
	return n
}

// before says whether one of the first n tables holds the key.
func (sp *space) before(n int, key uint64) bool {
	for _, t := range sp.tables()[:n] {
		if s := t.find(key); s != nil && s.val&valSet != 0 {
			return true
		}
	}
	return false
}

// ScopeStats are the counts of one scope.
type ScopeStats struct {
	Scope  Scope
	Blocks int // distinct blocks, all tiers
	Leases int // entries with a deadline: reported, speculative and learned ones

	ReportedLeases int // of Leases, what was given to Report
}

// Scopes yields the counts of every scope, drained ones with zeros.
func (x *Index) Scopes() iter.Seq[ScopeStats] {
	return func(yield func(ScopeStats) bool) {
		for s, sp := range *x.spaces.Load() {
			sp.d.mu.Lock()
			st := ScopeStats{Scope: s}
			if !sp.dropped && !x.closed.Load() {
				st.Blocks = sp.distinct()
			}
			sp.d.mu.Unlock()
			for i := range sp.leases {
				if l := sp.leases[i].Load(); l != nil {
					st.Leases += int(l.held.Load())
					if leaseKind(i) == leaseReported {
						st.ReportedLeases = int(l.held.Load())
					}
				}
			}
			if !yield(st) {
				return
			}
		}
	}
}

// Holdings is how many GPU blocks h holds, in all scopes.
func (x *Index) Holdings(h Holder) int { return x.TierHoldings(h, TierGPU) }

// TierHoldings is how many blocks h holds in a tier, in all scopes.
func (x *Index) TierHoldings(h Holder, t Tier) int {
	if holder := x.known(h); holder != nil && t < tiers {
		return holder.holdings()[t]
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
