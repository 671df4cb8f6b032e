package index

import (
	"context"
	"slices"
	"time"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
)

// Run sweeps every SweepEvery, and soon after a holder or a block ended, until ctx ends. It returns nil.
func (x *Index) Run(ctx context.Context) error {
	next := x.o.Now().Add(x.o.SweepEvery)
	for {
		wait := max(0, min(next.Sub(x.o.Now()), x.untilExpiry()))
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-x.sweepRequests:
			timer.Stop()
		case <-timer.C:
		}
		if now := x.o.Now(); !now.Before(next) {
			x.expireSilent(now)
			x.Sweep()
			next = now.Add(x.o.SweepEvery)
			continue
		}
		x.sweepSoon()
	}
}

// sweepSoon removes the blocks of ended holders, and those that end now, between two sweeps.
func (x *Index) sweepSoon() {
	x.sweeping.Lock()
	defer x.sweeping.Unlock()
	x.sweepDead()
	x.expire()
}

// Sweep does one round of Run now: it drops silent reporters, ends blocks whose time has come,
// and removes the blocks of ended holders. One sweep runs at a time;
// another call waits for it.
func (x *Index) Sweep() {
	x.sweeping.Lock()
	defer x.sweeping.Unlock()
	x.expireSilent(x.o.Now())
	x.expire()
	x.sweepDead()
	for _, sh := range x.allShards() {
		sh.tidy()
	}
	x.dropDrained()
	x.pool.Trim()
}

// expireSilent drops the reporters that have been silent for longer than ReplicaTTL.
// They must Begin again.
func (x *Index) expireSilent(now time.Time) {
	for h := range x.all() {
		h.mu.Lock()
		if h.incarnation != 0 && now.Sub(x.LastReport(h.id)) > x.o.ReplicaTTL {
			h.clear(nil)
			h.endMembers()
			h.incarnation = 0
			h.since, h.loss = now.UnixNano(), LossSilent
		}
		h.mu.Unlock()
	}
}

func (x *Index) allShards() []*shard {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]*shard, 0, len(x.shards))
	for _, sh := range x.shards {
		all = append(all, sh)
	}
	return all
}

// sweepDead removes the blocks of ended holders. x.sweeping is held: two sweeps at
// once would free a dead slot twice.
func (x *Index) sweepDead() {
	for _, sh := range x.allShards() {
		sh.sweep()
	}
}

// sweep removes the blocks of killed slots, in steps, so that ingest never waits
// for long.
func (sh *shard) sweep() {
	sh.mu.Lock()
	dead := slices.Clone(sh.slots.Dead())
	keyspaces := slices.Clone(sh.keyspaces)
	sh.mu.Unlock()
	if len(dead) == 0 {
		return
	}
	var gone holderset.Mask
	for _, slot := range dead {
		gone.Put(slot, true)
	}
	s := sweeper{sh: sh, gone: &gone}
	pass := func(f func()) {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		if !sh.x.closed.Load() {
			f()
		}
	}
	for at, more := uint32(0), true; more; more = at > 0 {
		next := uint32(0) // also of a closed index
		pass(func() { next = s.nodes(at) })
		at = next
	}
	for _, ks := range keyspaces {
		if ks == nil {
			continue
		}
		for _, t := range ks.flats() {
			for q := range hashtable.Parts {
				pass(func() {
					if !ks.dropped {
						s.table(t, q)
					}
				})
			}
		}
	}
	if s.failed {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for k := range sh.copies {
		if gone.Has(int(k.slot)) {
			delete(sh.copies, k)
		}
	}
	for _, slot := range dead {
		sh.info[slot].discard()
	}
	sh.slots.Free(dead)
}

// sweepStep is how many steps are made under the lock: about a tenth of a millisecond.
const sweepStep = 1024

// nodes removes the blocks in some nodes, from a number on, and returns where to go on, 0 behind
// the last.
func (s *sweeper) nodes(from uint32) (next uint32) {
	before := s.sh.blocks()
	next, ok := s.sh.nodes.Clear(s.gone, from, sweepStep)
	s.sh.hybrid.Sweep(s.gone, from, next)
	s.failed = s.failed || !ok
	s.sh.x.blocks.Add(int64(s.sh.blocks() - before))
	return next
}

func (i *slotInfo) discard() {
	i.gpu.Discard()
	for _, l := range i.lower {
		l.Discard()
	}
	*i = slotInfo{}
}

// flats returns the tables that hold blocks by key.
func (ks *keyspace) flats() (all []*hashtable.Table) {
	for i := range ks.lower {
		if t := ks.lower[i].Load(); t != nil {
			all = append(all, t)
		}
	}
	return all
}

// sweeper removes the blocks of dead slots.
type sweeper struct {
	sh     *shard
	gone   *holderset.Mask
	failed bool  // there were too many different sets: the slots stay dead and are swept again
	slots  []int // scratch
}

// table removes the blocks in one array of a table.
func (s *sweeper) table(t *hashtable.Table, part int) {
	before := t.Len()
	for row := range t.Each(part) {
		s.slots = s.sh.sets.AppendIn(s.slots[:0], row.Set(), s.gone)
		for _, slot := range s.slots {
			s.failed = !s.sh.toggleIn(t, row, slot) || s.failed
		}
	}
	s.sh.x.blocks.Add(int64(t.Len() - before))
}

// tidy drops the hashes of evicted blocks, and returns unused memory.
func (sh *shard) tidy() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.x.closed.Load() {
		return
	}
	if sh.evicted > 0 {
		sh.forgetEvicted()
	}
	for _, ks := range sh.keyspaces {
		if ks == nil {
			continue
		}
		for _, t := range ks.flats() {
			t.Trim()
		}
	}
	for i := range sh.info {
		if info := &sh.info[i]; sh.slots.Live.Has(i) {
			info.gpu.Trim()
			for _, l := range info.lower {
				l.Trim()
			}
		}
	}
	sh.nodes.Trim()
}

// forgetEvicted drops the hashes of blocks below the GPU that no tier has any more.
// sh.mu is held.
func (sh *shard) forgetEvicted() {
	sh.evicted = 0
	for slot := range sh.info {
		for index, l := range sh.info[slot].lower {
			ks := sh.keyspaces[index]
			l.Each(func(_, key uint64) bool {
				return ks.below(key, slot)
			})
		}
	}
}

// dropDrained removes the empty scopes, when more than half of MaxScopes are used.
func (x *Index) dropDrained() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(*x.keyspaces.Load())*2 < x.o.MaxScopes {
		return
	}
	next := map[Scope]*keyspace{}
	var drained []*keyspace
	for k, sh := range x.shards {
		sh.mu.Lock()
		drained = append(drained, sh.takeDrained()...)
		for _, ks := range sh.keyspaces {
			if ks != nil {
				next[ks.scope] = ks
			}
		}
		sh.mu.Unlock()
		if sh.unused() {
			delete(x.shards, k)
		}
	}
	x.keyspaces.Store(&next)
	for _, ks := range drained {
		x.returnScope(ks.maker)
		ks.discard()
	}
}

// takeDrained removes the empty keyspaces from the shard. Both locks are held.
func (sh *shard) takeDrained() (drained []*keyspace) {
	for i, ks := range sh.keyspaces {
		if ks == nil || ks.blocks() > 0 {
			continue
		}
		ks.dropped = true
		sh.keyspaces[i] = nil
		sh.nodes.Drop(&ks.tree)
		drained = append(drained, ks)
	}
	for i := range sh.info { // hashes of evicted blocks may be left
		for index, l := range sh.info[i].lower {
			if sh.keyspaces[index] == nil {
				l.Discard()
				delete(sh.info[i].lower, index)
			}
		}
	}
	return drained
}

// unused reports whether only x.keyspace can reach the shard.
func (sh *shard) unused() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, ks := range sh.keyspaces {
		if ks != nil {
			return false
		}
	}
	return len(sh.slots.Dead()) == 0 && sh.slots.Live == holderset.Mask{}
}
