package index

import (
	"time"

	"warmroute/index/internal/expiry"
	"warmroute/index/internal/hybrid"
	"warmroute/prefixhash"
)

// leaseBasis is the reason for an entry with a deadline.
type leaseBasis int

const (
	leaseReported    leaseBasis = iota // a reporter that sends no removals has reported the block
	leaseSpeculative                   // a request was just sent to the holder

	leaseBases
)

// Speculate records that h will soon hold keys, because a request was sent to it: until the
// deadline they count as Blocks, not as Reported. A report of h about a key, stored or
// removed, replaces the entry. Keys that h already reports need not be given but may be.
// Speculate waits for no lock that ingest holds. Like all deadlines here, this one may come
// up to 17 ms late for lookups.
func (x *Index) Speculate(s Scope, h HolderID, keys []prefixhash.Key, until time.Time) {
	x.lease(leaseSpeculative, s, h, keys, until.UnixNano())
}

// Withdraw ends speculation about h and keys, by however many requests.
func (x *Index) Withdraw(s Scope, h HolderID, keys []prefixhash.Key) {
	x.lease(leaseSpeculative, s, h, keys, 0)
}

// Report records that h holds keys, for a reporter that may not report their removal: they
// count as Reported until the deadline.
func (x *Index) Report(s Scope, h HolderID, keys []prefixhash.Key, until time.Time) {
	if holder := x.byID(h); holder != nil {
		x.noteReport(h, x.o.Now().UnixNano())
	}
	x.lease(leaseReported, s, h, keys, until.UnixNano())
}

// Retract ends entries of Report in the scopes of a part that are of a cache group.
func (x *Index) Retract(of *Part, group int, h HolderID, keys []prefixhash.Key) {
	for s, ks := range *x.keyspaces.Load() {
		if l := ks.leases[leaseReported].Load(); l != nil && s.Group == group && of.Covers(s) {
			l.End(int32(h), keys)
		}
	}
}

// lease sets the deadline of entries or, with until 0, ends them.
func (x *Index) lease(basis leaseBasis, s Scope, id HolderID, keys []prefixhash.Key, until int64) {
	h := x.byID(id)
	if len(keys) == 0 || s.Scheme == "" || x.closed.Load() || h == nil {
		return
	}
	if m := x.memberOf(id, s.modelKey()); basis == leaseSpeculative && m != nil && m.Foreseen() {
		x.arrive(m, &s, keys, until)
		return
	}
	ks := (*x.keyspaces.Load())[s]
	if until == 0 {
		if ks != nil && ks.leases[basis].Load() != nil {
			ks.leases[basis].Load().End(int32(id), keys)
		}
		return
	}
	if ks == nil {
		if ks = x.keyspace(s, h.self.Replica); ks == nil {
			return
		}
	}
	l := ks.leases[basis].Load()
	if l == nil {
		ks.leases[basis].CompareAndSwap(nil, expiry.NewTable(&x.expiries))
		l = ks.leases[basis].Load()
	}
	l.Set(int32(id), keys, until)
}

// arrive records a prompt in flight to a member whose groups decide how much of it others
// hit. With until 0 it takes the prompt back.
func (x *Index) arrive(m *hybrid.Member, s *Scope, keys []prefixhash.Key, until int64) {
	if until == 0 {
		m.Withdraw(keys)
		return
	}
	reader, r := x.enter()
	defer reader.Leave()
	v := r.promptLookup(x, s, keys)
	r.hybrid.Arrive(m, hybrid.Arrival{Asked: s.home(), Keys: keys, Until: until, Now: x.o.Now().UnixNano()}, v)
	v.end()
}

// joined makes the holder's end end its leases in l too. It returns false if the holder is
// not known.
func (x *Index) joined(id int32, l *expiry.Table) bool {
	h := x.byID(HolderID(id))
	if h == nil {
		return false
	}
	h.leaseMu.Lock()
	h.leased = append(h.leased, l)
	h.leaseMu.Unlock()
	return true
}

// cancel drops speculation about keys on which the holder has reported.
func (ks *keyspace) cancel(id HolderID, keys []uint64) {
	if l := ks.leases[leaseSpeculative].Load(); l != nil {
		l.EndHeld(int32(id), keys)
	}
}

func (ks *keyspace) cancelOne(id HolderID, key uint64) {
	if ks.leases[leaseSpeculative].Load() != nil {
		ks.cancel(id, []uint64{key})
	}
}

// allLeases yields the tables of a keyspace's leases, with their basis.
func (ks *keyspace) allLeases(yield func(leaseBasis, *expiry.Table) bool) {
	for basis := range leaseBases {
		if l := ks.leases[basis].Load(); l != nil && !yield(basis, l) {
			return
		}
	}
}

// idleLeases reports whether the keyspace's leases have no entries and no call is
// about to add one.
func (ks *keyspace) idleLeases() bool {
	for _, l := range ks.allLeases {
		if !l.Idle() {
			return false
		}
	}
	return true
}
