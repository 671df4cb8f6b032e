package index

import (
	"context"
	"slices"
	"time"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
)

// Run sweeps every SweepEvery, and soon after a holder ended or a deadline
// passed, until ctx ends. It returns nil.
func (x *Index) Run(ctx context.Context) error {
	next := x.o.Now().Add(x.o.SweepEvery)
	for {
		wait := max(0, min(next.Sub(x.o.Now()), x.untilDeadline()))
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-x.wakeup:
			timer.Stop()
		case <-timer.C:
		}
		if now := x.o.Now(); !now.Before(next) {
			x.expireSilent(now)
			x.Sweep()
			next = now.Add(x.o.SweepEvery)
			continue
		}
		x.sweepDead()
		x.expireLeases()
	}
}

// Sweep does at once what Run does from time to time: forget silent reporters,
// end what is past its deadline, and clear what holders that ended have left.
func (x *Index) Sweep() {
	x.expireSilent(x.o.Now())
	x.expireLeases()
	x.sweepDead()
	for _, d := range x.allDomains() {
		d.tidy()
	}
	x.dropDrained()
	x.pool.Trim()
}

// untilDeadline is how long the next lease lasts.
func (x *Index) untilDeadline() time.Duration {
	first := int64(0)
	for _, sp := range *x.spaces.Load() {
		for i := range sp.leases {
			if l := sp.leases[i].Load(); l != nil {
				if n := l.next.Load(); n != 0 && (first == 0 || n < first) {
					first = n
				}
			}
		}
	}
	if first == 0 {
		return x.o.SweepEvery
	}
	return time.Duration(first - x.o.Now().UnixNano())
}

func (x *Index) expireLeases() {
	now := x.o.Now().UnixNano()
	for _, sp := range *x.spaces.Load() {
		for i := range sp.leases {
			if l := sp.leases[i].Load(); l != nil {
				l.tick(now)
			}
		}
	}
}

// expireSilent forgets the reporters that have been silent for longer than
// ReplicaTTL. They must Begin again.
func (x *Index) expireSilent(now time.Time) {
	x.holders.Range(func(_, v any) bool {
		h := v.(*holder)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.incarnation != 0 && now.UnixNano()-x.heard(h.id) > int64(x.o.ReplicaTTL) {
			h.clear()
			h.forgetGroups()
			h.incarnation = 0
		}
		return true
	})
}

func (x *Index) allDomains() []*domain {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]*domain, 0, len(x.domains))
	for _, d := range x.domains {
		all = append(all, d)
	}
	return all
}

func (x *Index) sweepDead() {
	for _, d := range x.allDomains() {
		d.sweep()
	}
}

// sweep takes what killed slots had away, in steps, so that ingest never waits
// for long.
func (d *domain) sweep() {
	d.mu.Lock()
	dead := slices.Clone(d.slots.Dead())
	spaces := slices.Clone(d.spaces)
	d.mu.Unlock()
	if len(dead) == 0 {
		return
	}
	var gone holderset.Mask
	for _, slot := range dead {
		gone.Put(slot, true)
	}
	s := sweeper{d: d, gone: &gone}
	pass := func(f func()) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.x.closed.Load() {
			f()
		}
	}
	for _, slot := range dead {
		for more := true; more; {
			more = false
			pass(func() { more = s.stems(slot) })
		}
	}
	for _, sp := range spaces {
		if sp == nil {
			continue
		}
		for _, t := range sp.flats() {
			for q := range hashtable.Parts {
				pass(func() {
					if !sp.dropped {
						s.table(t, q)
					}
				})
			}
		}
	}
	if s.failed {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range d.copies {
		if gone.Has(int(k.slot)) {
			delete(d.copies, k)
		}
	}
	for _, p := range slices.Clone(d.orphans.queue) {
		if len(p.contents) > 0 && gone.Has(p.run.slot) {
			d.orphans.forget(p)
		}
	}
	for _, slot := range dead {
		d.info[slot].discard()
		d.partial.Put(slot, false)
	}
	d.slots.Free(dead)
}

// sweepStep is how many buckets of a holder's names are looked at under the lock
// at a time: about a tenth of a millisecond.
const sweepStep = 1024

// stems takes some of a dead slot's blocks out of the stems. false: none are left,
// or there are too many different sets: the slot stays dead and is swept again.
func (s *sweeper) stems(slot int) (more bool) {
	d, info, before := s.d, &s.d.info[slot], s.d.blocks()
	leave := func(place uint64) bool {
		id := pos(place).stem()
		st := d.stems.at(id)
		held := d.cutoff(st, slot)
		ok := held == 0 || d.flip(id, st, 0, held, slot)
		s.failed = s.failed || !ok
		return ok
	}
	more = info.lane.Drain(sweepStep, leave)
	more = info.odd.Drain(sweepStep, leave) || more
	d.x.blocks.Add(int64(d.blocks() - before))
	return more && !s.failed
}

func (i *slotInfo) discard() {
	i.lane.Discard()
	i.odd.Discard()
	i.kids.Discard()
	for _, l := range i.lower {
		l.Discard()
	}
	*i = slotInfo{}
}

// flats are the tables that have blocks by their keys.
func (sp *space) flats() (all []*hashtable.Table) {
	if t := sp.stranded.Load(); t != nil {
		all = append(all, t)
	}
	for i := range sp.lower {
		if t := sp.lower[i].Load(); t != nil {
			all = append(all, t)
		}
	}
	return all
}

// sweeper rewrites sets without some slots. Each distinct set is worked out
// once per array.
type sweeper struct {
	d    *domain
	gone *holderset.Mask
	memo []holderset.ID // by set id: 0 = not known yet, else its replacement + 1

	failed bool
}

// replacement returns the set without the gone slots, pinned for the pass.
func (s *sweeper) replacement(id holderset.ID) holderset.ID {
	if int(id) < len(s.memo) && s.memo[id] != 0 {
		return s.memo[id] - 1
	}
	sets := &s.d.sets
	to := id
	sets.Retain(to, 1)
	var slots []int
	sets.Each(id, func(slot int) {
		if s.gone.Has(slot) {
			slots = append(slots, slot)
		}
	})
	for _, slot := range slots {
		next, ok := sets.Toggle(to, slot)
		if !ok {
			s.failed = true // no ids left: the slots stay dead and are swept again
			break
		}
		sets.Release(to, 1)
		to = next
	}
	for int(id) >= len(s.memo) {
		s.memo = append(s.memo, make([]holderset.ID, int(id)+1-len(s.memo))...)
	}
	s.memo[id] = to + 1
	return to
}

// begin and end frame a pass: ids the memo knows must not be given away in it.
func (s *sweeper) begin() {
	clear(s.memo)
	s.d.sets.Freeze(true)
}

func (s *sweeper) end() {
	s.d.sets.Freeze(false)
	for _, to := range s.memo {
		if to != 0 {
			s.d.sets.Release(to-1, 1)
		}
	}
}

func (s *sweeper) table(t *hashtable.Table, part int) {
	s.begin()
	defer s.end()
	before := t.Len()
	for row := range t.Each(part) {
		id := row.Value().Set()
		if to := s.replacement(id); to != id {
			t.Set(row, to)
			s.d.sets.Retain(to, 1)
			s.d.sets.Release(id, 1)
		}
	}
	s.d.x.blocks.Add(int64(t.Len() - before))
	t.Shrink(part)
}

// tidy drops names of blocks that were evicted, and the memory that is no
// longer needed.
func (d *domain) tidy() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.x.closed.Load() {
		return
	}
	if d.evicted > 0 {
		d.forgetEvicted()
	}
	for _, sp := range d.spaces {
		if sp == nil {
			continue
		}
		sp.heads.Trim()
		sp.marks.Trim()
		for _, t := range sp.flats() {
			t.Trim()
		}
	}
	for i := range d.info {
		if info := &d.info[i]; d.slots.Live.Has(i) {
			info.lane.Trim()
			info.odd.Trim()
			info.kids.Trim()
			for _, l := range info.lower {
				l.Trim()
			}
		}
	}
	d.stems.tidy()
}

// forgetEvicted drops names of blocks below the GPU that nobody keeps. d.mu is held.
func (d *domain) forgetEvicted() {
	d.evicted = 0
	for slot := range d.info {
		for index, l := range d.info[slot].lower {
			sp := d.spaces[index]
			l.Each(func(_, key uint64) bool {
				return d.inTable(&sp.lower[TierCPU], key, slot) || d.inTable(&sp.lower[TierStorage], key, slot)
			})
		}
	}
}

// dropDrained removes the scopes nobody has anything in any more, when scopes
// run short.
func (x *Index) dropDrained() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(*x.spaces.Load())*2 < x.o.MaxScopes {
		return
	}
	next := map[Scope]*space{}
	var drained []*space
	for k, d := range x.domains {
		d.mu.Lock()
		drained = append(drained, d.takeDrained()...)
		for _, sp := range d.spaces {
			if sp != nil {
				next[sp.scope] = sp
			}
		}
		d.mu.Unlock()
		if d.unused() {
			delete(x.domains, k)
		}
	}
	x.spaces.Store(&next)
	for _, sp := range drained {
		sp.discard()
	}
}

// takeDrained takes the empty spaces out of the domain. Both locks are held.
func (d *domain) takeDrained() (drained []*space) {
	if d.orphans.blocks > 0 {
		return nil
	}
	for i, sp := range d.spaces {
		if sp == nil || sp.blocks() > 0 || !sp.endLeases() {
			continue
		}
		sp.dropped = true
		d.spaces[i] = nil
		drained = append(drained, sp)
	}
	for i := range d.info { // names of evicted blocks may be left
		for index, l := range d.info[i].lower {
			if d.spaces[index] == nil {
				l.Discard()
				delete(d.info[i].lower, index)
			}
		}
	}
	return drained
}

// unused says whether nobody can come back to the domain but by x.space.
func (d *domain) unused() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, sp := range d.spaces {
		if sp != nil {
			return false
		}
	}
	idle := len(d.slots.Dead()) == 0
	d.slots.Each(func(int) { idle = false })
	return idle
}
