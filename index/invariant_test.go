package index

import (
	"errors"
	"fmt"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/radix"
)

// check describes the faults of an index without a running writer.
func (x *Index) check() error {
	if x.closed.Load() {
		return nil
	}
	blocks := 0
	for _, sh := range x.allShards() {
		if err := sh.check(); err != nil {
			return err
		}
		sh.mu.Lock()
		blocks += sh.blocks()
		sh.mu.Unlock()
	}
	if n := int(x.blocks.Load()); n != blocks {
		return fmt.Errorf("%d blocks counted, %d are there", n, blocks)
	}
	return nil
}

// check describes the faults of a shard: it compares the promises of the types' comments
// with the contents, and counts with counted things.
func (sh *shard) check() error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := checker{sh: sh, slots: make([]checkedSlot, len(sh.info))}
	for i := range c.slots {
		c.slots[i] = checkedSlot{tables: [layers]map[keyspaceKey]bool{{}, {}, {}, {}}}
		if sh.slots.Live.Has(i) { // a dead one may have hashes of blocks that are gone
			sh.info[i].gpu.Each(func(_ uint64, p radix.Place) {
				c.slots[i].tables[TierGPU][keyspaceKey{sh.nodes.Tree(p), sh.nodes.Key(p)}] = true
			})
		}
	}
	steps := []func() error{c.keyspaces, c.others, c.copies}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	for slot := range sh.info {
		if sh.slots.Live.Has(slot) {
			if err := c.slot(slot); err != nil {
				return fmt.Errorf("slot %d: %w", slot, err)
			}
		}
	}
	return nil
}

// checker gathers the statements of a shard's parts about each other.
type checker struct {
	sh    *shard
	slots []checkedSlot
}

// keyspaceKey is a block.
type keyspaceKey struct {
	keyspace int
	key      uint64
}

// checkedSlot has the tables' statements about a slot.
type checkedSlot struct {
	tables [layers]map[keyspaceKey]bool
}

func (c *checker) keyspaces() error {
	for i, ks := range c.sh.keyspaces {
		if ks == nil {
			continue
		}
		for _, t := range ks.flats() {
			if n := rowsWithSets(t); n != t.Len() {
				return fmt.Errorf("keyspace %d: a table counts %d keys, there are %d", i, t.Len(), n)
			}
		}
		for tier := TierCPU; tier < layers; tier++ {
			t := ks.lower[tier].Load()
			if t == nil {
				continue
			}
			for s := range t.All() {
				c.sh.sets.Each(s.Set(), func(slot int) { c.slots[slot].tables[tier][keyspaceKey{i, s.Key()}] = true })
			}
		}
	}
	return nil
}

func rowsWithSets(t *hashtable.Table) (n int) {
	for range t.All() {
		n++
	}
	return n
}

// others: a holder has blocks in other groups only where it holds full attention's.
func (c *checker) others() error {
	sh := c.sh
	for _, t := range sh.hybrid.Others() {
		for node := range t.Nodes() {
			at := 0
			for _, r := range t.Of(node) {
				if r.Set == 0 || int(r.From) < at || r.To <= r.From {
					return fmt.Errorf("node %d: spans %v", node, t.Of(node))
				}
				at = int(r.To)
				var err error
				sh.sets.Each(r.Set, func(slot int) {
					if live := sh.slots.Live.Has(slot); live && (!sh.hybrid.HasOthers(slot) || sh.info[slot].gpu.Held(node) < int(r.To)) {
						err = fmt.Errorf("node %d: slot %d has block %d in other groups alone", node, slot, r.To)
					}
				})
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *checker) copies() error {
	for k, n := range c.sh.copies {
		if slot := int(k.slot); c.sh.slots.Live.Has(slot) {
			if n == 0 || !c.slots[slot].tables[k.tier][keyspaceKey{int(k.keyspace), k.key}] {
				return fmt.Errorf("slot %d has %d more copies of %x in tier %d, which it lacks", slot, n, k.key, k.tier)
			}
		}
	}
	return nil
}

// slot: a live slot's names, one for each block it has, and its counts.
func (c *checker) slot(slot int) error {
	info, is := &c.sh.info[slot], &c.slots[slot]
	if info.holder == nil {
		return errors.New("nobody's")
	}
	if n := info.gpu.Len(); info.blocks[TierGPU] != n {
		return fmt.Errorf("%d blocks on GPU counted, %d hashes there are", info.blocks[TierGPU], n)
	}
	for tier := TierCPU; tier < layers; tier++ {
		if info.blocks[tier] != len(is.tables[tier]) {
			return fmt.Errorf("%d blocks counted in tier %d, there are %d", info.blocks[tier], tier, len(is.tables[tier]))
		}
		if tier == tierLeased { // the hashes are the keys
			continue
		}
		for k := range is.tables[tier] {
			named := false
			if l := info.lower[k.keyspace]; l != nil {
				l.Each(func(_, key uint64) bool { named = named || key == k.key; return true })
			}
			if !named {
				return fmt.Errorf("block %x in tier %d has no name", k.key, tier)
			}
		}
	}
	return nil
}

// empty ends all holders of an index, and describes what is left of their blocks: a reference to a
// set that was not given back, for example.
func (x *Index) empty() error {
	for _, h := range x.Holders() {
		x.Remove(h.Replica)
	}
	for range 2 { // what lookups may still see goes with the second
		x.Sweep()
	}
	if c := x.counts(); c.Blocks+c.Hashes+c.Sets+c.Grouped != 0 {
		return fmt.Errorf("%+v are left of nothing", c)
	}
	return x.check()
}
