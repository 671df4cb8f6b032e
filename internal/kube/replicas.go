package kube

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"warmroute/internal/fleet"
)

// replicas lists the fleet's replicas, sorted by address: each of the
// pool's ports on each ready pod.
func replicas(p pool, pods []pod, template fleet.ReplicaOptions) []fleet.ReplicaOptions {
	var list []fleet.ReplicaOptions
	for _, pod := range pods {
		if !pod.ready {
			continue
		}
		for i, port := range p.ports {
			if pod.active != nil && !slices.Contains(pod.active, port) {
				continue
			}
			r := template
			r.Role = cmp.Or(pod.role, r.Role)
			r.Name, r.Address = pod.name, netip.AddrPortFrom(pod.addr, port).String()
			if len(p.ports) > 1 { // data parallelism with a port per rank
				r.Name += "-rank-" + strconv.Itoa(i)
				r.Events = eventsOf(template.Events, i)
			}
			list = append(list, r)
		}
	}
	// Two pods with one address are two host-network pods of a node: the first by
	// name has the port.
	slices.SortFunc(list, func(a, b fleet.ReplicaOptions) int {
		if c := strings.Compare(a.Address, b.Address); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return slices.CompactFunc(list, func(a, b fleet.ReplicaOptions) bool { return a.Address == b.Address })
}

func eventsOf(all []fleet.EventSource, rank int) []fleet.EventSource {
	var own []fleet.EventSource
	for _, e := range all {
		if e.Rank == rank {
			own = append(own, e)
		}
	}
	return own
}
