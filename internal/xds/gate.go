package xds

import (
	"warmroute/internal/fleet"
)

// gated is a snapshot without the replicas that some Envoy does not have.
type gated struct {
	of      *fleet.Snapshot
	acked   *acked
	visible *fleet.Snapshot
}

// notAcknowledged is the reason why a replica is not named yet.
const notAcknowledged = "an Envoy has not acknowledged it yet"

// Snapshot returns the fleet as far as every connected Envoy has acknowledged it.
func (p *Publisher) Snapshot() *fleet.Snapshot {
	s, a := p.fleet.Snapshot(), p.acks.acked.Load()
	if a == nil {
		return s
	}
	if g := p.gated.Load(); g != nil && g.of == s && g.acked == a {
		return g.visible
	}
	g := &gated{of: s, acked: a, visible: a.visible(s)}
	p.gated.Store(g)
	return g.visible
}

// acked are the addresses that every connected Envoy has.
type acked map[string]bool

// visible returns s with its unacknowledged replicas not ready. It returns s
// itself if it has no such replica, or no other.
func (a acked) visible(s *fleet.Snapshot) *fleet.Snapshot {
	replicas, left := make([]*fleet.Replica, 0, len(s.Replicas)), 0
	for _, r := range s.Replicas {
		if r.Ready && !a[r.Addr] {
			hidden := *r
			hidden.Ready, hidden.Why = false, notAcknowledged
			r = &hidden
		} else if r.Ready {
			left++
		}
		replicas = append(replicas, r)
	}
	if left == s.Ready || left == 0 {
		return s
	}
	v := fleet.NewSnapshot(replicas...)
	v.Settled = s.Settled
	return v
}
