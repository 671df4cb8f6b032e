package filter

// Any names replicas for a request that could not be judged, for gateways that
// have no balancer of their own to fall back to: the ready ones the request may
// use, in turns. d keeps the reason why it was not judged; nothing changes when
// there is no such replica.
func (r *Router) Any(q *Query, d *Decision) {
	replicas := r.decider.views.now().snap.Replicas
	if len(replicas) == 0 {
		return
	}
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	s.work.dest = s.work.dest[:0]
	named, first := 0, int(r.decider.ordinal.Add(1)%uint64(len(replicas)))
	for i := range replicas {
		c := replicas[(first+i)%len(replicas)]
		if !c.Ready || c.Tenant != "" && c.Tenant != q.Tenant || !inSubset(c.Addr, q.Subset) {
			continue
		}
		if named > 0 {
			s.work.dest = append(s.work.dest, ',')
		}
		s.work.dest = append(s.work.dest, c.Addr...)
		if named++; named == r.decider.o.Ranked {
			break
		}
	}
	if named > 0 {
		d.Destination = string(s.work.dest)
		r.metrics.anyway.Inc()
	}
}
