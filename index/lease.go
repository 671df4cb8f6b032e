package index

import (
	"time"

	"warmroute/index/internal/expiry"
	"warmroute/prefixhash"
)

// Report records that h holds keys, for a reporter that may not report their removal: they
// count until the deadline. Like all deadlines here, this one may come up to 17 ms late for
// lookups.
func (x *Index) Report(s Scope, h HolderID, keys []prefixhash.Key, until time.Time) {
	holder := x.byID(h)
	if holder == nil {
		return
	}
	x.noteReport(h, x.o.Now().UnixNano())
	if len(keys) == 0 || s.Scheme == "" || x.closed.Load() {
		return
	}
	ks := (*x.keyspaces.Load())[s]
	if ks == nil {
		if ks = x.keyspace(s, holder.self.Replica); ks == nil {
			return
		}
	}
	if ks.leases.Load() == nil {
		ks.leases.CompareAndSwap(nil, expiry.NewTable(&x.expiries))
	}
	ks.leases.Load().Set(int32(h), keys, until.UnixNano())
}

// Retract ends entries of Report in the scopes of a part that are of a cache group.
func (x *Index) Retract(of *Part, group int, h HolderID, keys []prefixhash.Key) {
	for s, ks := range *x.keyspaces.Load() {
		if l := ks.leases.Load(); l != nil && s.Group == group && of.Covers(s) {
			l.End(int32(h), keys)
		}
	}
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
