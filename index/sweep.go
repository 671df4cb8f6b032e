package index

import (
	"context"
	"slices"
	"time"
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
	x.epochs.mu.Lock()
	x.epochs.collect()
	x.epochs.release()
	x.epochs.mu.Unlock()
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

// sweep takes what killed seats had away, in steps, so that ingest never waits
// for long.
func (d *domain) sweep() {
	d.mu.Lock()
	dead := slices.Clone(d.seating.dead)
	spaces := slices.Clone(d.spaces)
	d.mu.Unlock()
	if len(dead) == 0 {
		return
	}
	var gone mask
	for _, seat := range dead {
		gone.put(seat, true)
	}
	s := sweeper{d: d, gone: &gone}
	pass := func(f func()) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.x.closed.Load() {
			f()
		}
	}
	for _, seat := range dead {
		for more := true; more; {
			more = false
			pass(func() { more = s.stems(seat) })
		}
	}
	for _, sp := range spaces {
		if sp == nil {
			continue
		}
		for _, t := range sp.flats() {
			for q := range t.parts {
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
		if gone.has(int(k.seat)) {
			delete(d.copies, k)
		}
	}
	for _, p := range slices.Clone(d.orphans.queue) {
		if len(p.contents) > 0 && gone.has(p.run.seat) {
			d.orphans.forget(p)
		}
	}
	for _, seat := range dead {
		d.info[seat].discard()
		d.partial.put(seat, false)
	}
	d.seating.swept(dead)
}

// sweepStep is how many buckets of a holder's names are looked at under the lock
// at a time: about a tenth of a millisecond.
const sweepStep = 1024

// stems takes some of a dead seat's blocks out of the stems. false: none are left.
func (s *sweeper) stems(seat int) (more bool) {
	d, l := s.d, &s.d.info[seat].lane
	odd := &s.d.info[seat].odd
	if len(l.buckets) == 0 && len(odd.slots) == 0 {
		return false
	}
	before := d.blocks()
	leave := func(p pos) {
		id := p.stem()
		st := d.stems.at(id)
		if held := d.cutoff(st, seat); held > 0 && !d.flip(id, st, 0, held, seat) {
			s.failed = true // no sets left: the seat stays dead and is swept again
		}
	}
	rest, oddRest := max(0, len(l.buckets)-sweepStep), max(0, len(odd.slots)-sweepStep)
	eachPos(l.buckets[rest:], leave)
	for _, name := range odd.slots[oddRest:] {
		if name.val != 0 {
			leave(pos(name.val))
		}
	}
	if s.failed {
		return false
	}
	l.buckets, odd.slots = l.buckets[:rest], odd.slots[:oddRest]
	d.x.blocks.Add(int64(d.blocks() - before))
	return rest+oddRest > 0
}

func (i *seatInfo) discard() {
	i.lane.discard()
	i.odd.discard()
	i.kids.discard()
	for _, l := range i.lower {
		l.discard()
	}
	*i = seatInfo{}
}

// flats are the tables that have blocks by their keys.
func (sp *space) flats() (all []*table) {
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

// sweeper rewrites sets without some seats. Each distinct set is worked out
// once per array.
type sweeper struct {
	d    *domain
	gone *mask
	memo []setID // by set id: 0 = not known yet, else its replacement + 1

	failed bool
}

// replacement returns the set without the gone seats, pinned for the pass.
func (s *sweeper) replacement(id setID) setID {
	if int(id) < len(s.memo) && s.memo[id] != 0 {
		return s.memo[id] - 1
	}
	sets := &s.d.sets
	to := id
	sets.take(to, 1)
	var seats []int
	sets.each(id, func(seat int) {
		if s.gone.has(seat) {
			seats = append(seats, seat)
		}
	})
	for _, seat := range seats {
		next, ok := sets.flip(to, seat)
		if !ok {
			s.failed = true // no ids left: the seats stay dead and are swept again
			break
		}
		sets.drop(to, 1)
		to = next
	}
	for int(id) >= len(s.memo) {
		s.memo = append(s.memo, make([]setID, int(id)+1-len(s.memo))...)
	}
	s.memo[id] = to + 1
	return to
}

// begin and end frame a pass: ids the memo knows must not be given away in it.
func (s *sweeper) begin() {
	clear(s.memo)
	s.d.sets.frozen = true
}

func (s *sweeper) end() {
	s.d.sets.frozen = false
	for _, to := range s.memo {
		if to != 0 {
			s.d.sets.drop(to-1, 1)
		}
	}
}

func (s *sweeper) table(t *table, q int) {
	s.begin()
	defer s.end()
	p, before := t.parts[q].Load(), t.live[q]
	for i := range p.n {
		slot := p.at(i)
		id := setID(slot.val & valSet)
		if id == 0 {
			continue
		}
		if to := s.replacement(id); to != id {
			t.set(slot, to)
			s.d.sets.take(to, 1)
			s.d.sets.drop(id, 1)
		}
	}
	s.d.x.blocks.Add(int64(t.live[q] - before))
	if t.live[q]*4 < int(p.n) && p.n > minPart { // mostly empty: give memory back
		t.rebuild(q, compact)
	}
}

// sparse is how full an array must be, in percent, for a sweep to leave it alone.
// One of the pool can only be halved.
func (p *part) sparse() int {
	if p.mem.words != nil {
		return compact/2 - 4
	}
	return compact - 8
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
		sp.heads.tidy()
		sp.marks.tidy()
		for _, t := range sp.flats() {
			for q := range t.parts {
				if p := t.parts[q].Load(); p.n > 4*minPart && t.live[q]*100 < int(p.n)*p.sparse() {
					t.rebuild(q, compact)
				}
			}
		}
	}
	for i := range d.info {
		if info := &d.info[i]; d.seating.live.has(i) {
			info.lane.tidy()
			info.odd.tidy()
			info.kids.tidy()
			for _, l := range info.lower {
				l.tidy()
			}
		}
	}
	d.stems.tidy()
}

// forgetEvicted drops names of blocks below the GPU that nobody keeps. d.mu is held.
func (d *domain) forgetEvicted() {
	d.evicted = 0
	for seat := range d.info {
		for index, l := range d.info[seat].lower {
			sp := d.spaces[index]
			l.each(func(at int, _, key uint64) {
				if !d.inTable(&sp.lower[TierCPU], key, seat) && !d.inTable(&sp.lower[TierStorage], key, seat) {
					l.del(at)
				}
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
				l.discard()
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
	idle := len(d.seating.dead) == 0
	d.seating.each(func(int) { idle = false })
	return idle
}
