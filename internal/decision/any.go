package decision

// Any names replicas for a request without a decision, for gateways without a
// balancer of their own: in turns, the ready replicas of the subset that the tenant
// may use, or the held ones where none is ready. It returns "" if there is none.
func (d *Decider) Any(tenant string, subset []string, w *Work) string {
	replicas := d.views.now().snap.Replicas
	if len(replicas) == 0 {
		return ""
	}
	w.dest = w.dest[:0]
	first := int(d.ordinal.Add(1) % uint64(len(replicas)))
	for _, held := range [...]bool{false, true} {
		named := 0
		for i := range replicas {
			c := replicas[(first+i)%len(replicas)]
			if c.Ready == held || c.Held != held || c.Tenant != "" && c.Tenant != tenant || !InSubset(c.Addr, subset) {
				continue
			}
			if named > 0 {
				w.dest = append(w.dest, ',')
			}
			w.dest = append(w.dest, c.Addr...)
			if named++; named == int(d.ranked.Load()) {
				break
			}
		}
		if named > 0 {
			break
		}
	}
	return string(w.dest)
}
