package history

// order is the list of the nodes that no request in flight uses, by their last use.
type order struct {
	ends   node  // newer is the oldest node, older the newest one
	edge   *node // the oldest node of those that are not evicted; &ends = all nodes are evicted
	ages   ages  // of the nodes that are not evicted
	listed int   // tokens of these
}

func (o *order) clear() {
	o.ends.newer, o.ends.older, o.edge = &o.ends, &o.ends, &o.ends
	o.listed, o.ages = 0, ages{}
}

// link puts n into the list, as the next newer one of after.
func (o *order) link(n, after *node) {
	n.older, n.newer = after, after.newer
	n.newer.older, after.newer = n, n
	if !n.evicted && n.newer == o.edge {
		o.edge = n
	}
	o.count(n, n.tokens())
}

func (n *node) remove() { n.newer.older, n.older.newer = n.older, n.newer }

// count counts tokens of a node in the list, unless it is evicted.
func (o *order) count(n *node, tokens int) {
	if !n.evicted {
		*o.ages.of(n.seen) += tokens
		o.listed += tokens
	}
}

// reach makes the ages reach to now.
func (o *order) reach(now int64) {
	if o.ages.reaches(now) {
		return
	}
	oldest := now
	if o.edge != &o.ends {
		oldest = o.edge.seen
	}
	o.ages.reset(oldest, now)
	for n := o.edge; n != &o.ends; n = n.newer {
		*o.ages.of(n.seen) += n.tokens()
	}
}
