package index

// counts are what an index has.
type counts struct {
	Scopes, Holders int
	Blocks          int // distinct ones, in each tier by itself
	Hashes          int // of blocks, each for one holder
	Grouped         int
	Sets            int
	Bytes           int // of nodes, tables and hashes
}

func (x *Index) counts() counts {
	c := counts{Scopes: len(*x.keyspaces.Load()), Grouped: x.budget.Used()}
	for range x.Holders() {
		c.Holders++
	}
	for _, sh := range x.allShards() {
		sh.mu.Lock()
		c.Sets += sh.sets.Len()
		c.Bytes += sh.nodes.Bytes() + sh.sets.Bytes()
		c.Blocks += sh.blocks()
		for i := range sh.info {
			if sh.slots.Live.Has(i) {
				c.Hashes += sh.info[i].hashes()
				c.Bytes += sh.info[i].gpu.Bytes()
				for _, l := range sh.info[i].lower {
					c.Bytes += l.Bytes()
				}
			}
		}
		for _, ks := range sh.keyspaces {
			if ks != nil {
				c.Bytes += ks.tree.Bytes()
				for _, t := range ks.flats() {
					c.Bytes += t.Bytes()
				}
			}
		}
		sh.mu.Unlock()
	}
	return c
}

// hashes returns how many hashes a holder uses.
func (i *slotInfo) hashes() int {
	n := i.gpu.Len()
	for _, l := range i.lower {
		l.Each(func(hash, _ uint64) bool {
			if i.gpu.Find(hash) == 0 {
				n++
			}
			return true
		})
	}
	return n
}
