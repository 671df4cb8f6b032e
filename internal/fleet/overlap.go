package fleet

import (
	"slices"
	"time"
)

// overlapMost bounds how long replicas that are no longer listed stay for their
// successors.
const overlapMost = time.Second

// overlap keeps the entries of gone without which a model would have no ready
// replica, until the first request to each new replica has ended: if a pool
// changes its port, or a list all its addresses, requests can go to the old
// replicas meanwhile.
func (r *roster) overlap(gone []*entry) {
	for _, e := range gone {
		if e.until.IsZero() {
			e.until = time.Now().Add(overlapMost)
		}
	}
	r.going = len(gone)
	r.replace()
}

// replace removes replicas that are no longer listed and no longer needed.
func (r *roster) replace() {
	if r.going == 0 {
		return
	}
	r.going = 0
	awaited := false
	for _, e := range r.entries {
		awaited = awaited || e.until.IsZero() && !e.asked
	}
	for _, addr := range r.addresses() {
		e := r.entries[addr]
		switch {
		case e.until.IsZero():
		case awaited && e.current.Ready && !r.covered(e) && time.Now().Before(e.until):
			r.going++
		default:
			r.remove(addr, e)
		}
	}
}

// remove ends an entry.
func (r *roster) remove(addr string, e *entry) {
	e.cancel()
	delete(r.entries, addr)
	r.leave(e, reasonRemoved, "it is no longer listed")
}

// covered reports whether the replicas that stay serve every model of e.
func (r *roster) covered(e *entry) bool {
	return !slices.ContainsFunc(e.current.Models, func(m Model) bool {
		for _, other := range r.entries {
			if other.until.IsZero() && other.current.Ready && other.current.Model(m.ID) != nil {
				return false
			}
		}
		return true
	})
}
