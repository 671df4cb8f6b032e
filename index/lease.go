package index

import (
	"time"

	"warmroute/index/internal/expiry"
	"warmroute/index/internal/hybrid"
	"warmroute/prefixhash"
)

// leaseKind is what an entry with a deadline is evidence of.
type leaseKind int

const (
	leaseReported    leaseKind = iota // by a reporter that sends no removals
	leaseSpeculative                  // a request was just sent there

	leaseKinds
)

// Speculate records that h will soon hold keys, because a request was sent there:
// until the deadline they count as Blocks, not as Reported. What h reports
// about a key, stored or removed, replaces it. Keys that h already reports need
// not be given but may be. It waits for no lock that ingest holds. Like all
// deadlines here, this one may come up to 17 ms late for lookups.
func (x *Index) Speculate(s Scope, h HolderID, keys []prefixhash.Key, until time.Time) {
	x.lease(leaseSpeculative, s, h, keys, until.UnixNano())
}

// Withdraw ends what was speculated about h and keys, by however many requests.
func (x *Index) Withdraw(s Scope, h HolderID, keys []prefixhash.Key) {
	x.lease(leaseSpeculative, s, h, keys, 0)
}

// Report records that h holds keys, and may not report when it no longer does:
// they count as Reported until the deadline.
func (x *Index) Report(s Scope, h HolderID, keys []prefixhash.Key, until time.Time) {
	if holder := x.byID(h); holder != nil {
		x.noteReport(h, x.o.Now().UnixNano())
	}
	x.lease(leaseReported, s, h, keys, until.UnixNano())
}

// Retract ends what was given to Report.
func (x *Index) Retract(s Scope, h HolderID, keys []prefixhash.Key) {
	x.lease(leaseReported, s, h, keys, 0)
}

// lease sets the deadline of entries or, with until 0, ends them.
func (x *Index) lease(kind leaseKind, s Scope, id HolderID, keys []prefixhash.Key, until int64) {
	h := x.byID(id)
	if len(keys) == 0 || s.Scheme == "" || x.closed.Load() || h == nil {
		return
	}
	if m := x.memberOf(id, s.modelKey()); kind == leaseSpeculative && m != nil && m.Foreseen() {
		x.arrive(m, &s, keys, until)
		return
	}
	ks := (*x.keyspaces.Load())[s]
	if until == 0 {
		if ks != nil && ks.leases[kind].Load() != nil {
			ks.leases[kind].Load().End(int32(id), keys)
		}
		return
	}
	if ks == nil {
		if ks = x.keyspace(s, h.self.Replica); ks == nil {
			return
		}
	}
	l := ks.leases[kind].Load()
	if l == nil {
		ks.leases[kind].CompareAndSwap(nil, expiry.NewTable(&x.expiries))
		l = ks.leases[kind].Load()
	}
	l.Set(int32(id), keys, until)
}

// arrive records or, with until 0, takes back a prompt that is sent to a member whose groups
// decide what others hit of it.
func (x *Index) arrive(m *hybrid.Member, s *Scope, keys []prefixhash.Key, until int64) {
	if until == 0 {
		m.Withdraw(keys)
		return
	}
	reader, r := x.enter()
	defer reader.Leave()
	v := r.view(x, s, keys)
	r.hybrid.Arrive(m, hybrid.Arrival{Asked: s.home(), Keys: keys, Until: until, Now: x.o.Now().UnixNano()}, v)
	v.end()
}

// joined has a holder's end reach the leases that it has from now on.
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

// cancel drops speculation about keys that the holder has reported on.
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

// allLeases yields the leases of a keyspace, and of what kind they are.
func (ks *keyspace) allLeases(yield func(leaseKind, *expiry.Table) bool) {
	for kind := range leaseKinds {
		if l := ks.leases[kind].Load(); l != nil && !yield(kind, l) {
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
