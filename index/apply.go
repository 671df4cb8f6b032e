package index

import (
	"errors"
	"time"

	"warmroute/index/internal/hashtable"
	"warmroute/prefixhash"
)

// ErrIncarnation means that the batch is of an incarnation that is not current: the
// holder was begun again, removed, or expired. Call Begin and send the holder's blocks
// again.
var ErrIncarnation = errors.New("index: the batch's incarnation is not the current one")

// ErrClosed means that the index is closed.
var ErrClosed = errors.New("index: closed")

// Apply brings the index up to date with one batch. Lookups may see a part of
// it while it runs. Errors are ErrIncarnation and ErrClosed; then nothing has
// changed.
func (x *Index) Apply(b *Batch) (Result, error) {
	if x.closed.Load() {
		return Result{}, ErrClosed
	}
	h := x.known(b.Holder)
	if h == nil {
		return Result{}, ErrIncarnation
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.incarnation == 0 || b.Incarnation != h.incarnation {
		return Result{}, ErrIncarnation
	}
	h.result = Result{}
	now := x.o.Now()
	x.noteReport(h.id, now.UnixNano())
	h.removals.at = x.tenths(now.UnixNano())
	h.observe(b)
	a := applying{x: x, h: h, batch: b, tick: minutes(now), res: &h.result}
	for i := 0; i < len(b.Events); {
		i += a.apply(i)
	}
	h.boundExpiry()
	if h.result.twins {
		h.doubted(DoubtTwins)
	}
	clear(h.events)
	return h.result, nil
}

// applying is the state while a batch is applied. h.mu is held.
type applying struct {
	x     *Index
	h     *holder
	batch *Batch
	tick  uint16
	res   *Result

	cleared bool // an AllBlocksCleared is before the event in the batch
}

// apply applies an event, and returns how many events it has consumed: several events
// that only repeat a request's hit are consumed at once.
func (a *applying) apply(i int) (events int) {
	ev := &a.batch.Events[i]
	if a.h.undecided && (ev.Tier == TierGPU || ev.Kind == Cleared) {
		a.decide(i)
	}
	switch ev.Kind {
	case Stored:
		return a.stored(i, ev)
	case Removed:
		if ev.Tier == TierCPU && a.unloaded(ev) {
			break
		}
		a.h.toldRemovals(ev.Tier)
		a.x.removed(a.h, ev, a.res)
		a.h.removedInGroups(ev)
	case Cleared:
		a.cleared = true
		if ev.Part != nil {
			a.clearPart(ev.Part)
			break
		}
		a.clear(a.ownerInBatch(i))
	default:
		a.res.Dropped += len(ev.Hashes)
	}
	return 1
}

// stored applies a Stored event: the holder's member says whether the event is new and
// whether the nodes take its blocks, the nodes take them, and the member follows.
func (a *applying) stored(i int, ev *Event) (events int) {
	if ev.Tier != TierGPU && a.offloaded(ev) {
		return 1
	}
	m := a.h.follower(ev)
	if m == nil {
		a.store(ev)
		return 1
	}
	if n := m.Repeats(a.h.events[i:]); n > 0 {
		return n
	}
	if m.InNodes(&a.h.events[i]) {
		a.store(ev)
	}
	m.Stored(&a.h.events[i])
	return 1
}

// store stores the blocks of an event in its scope.
func (a *applying) store(ev *Event) {
	h, res := a.h, a.res
	if ev.Scope.Scheme == "" || ev.Tier >= tiers || !ev.Until.IsZero() && !ev.Until.After(a.x.o.Now()) || ev.Content != nil && len(ev.Content) != len(ev.Hashes) {
		res.Dropped += len(ev.Hashes)
		return
	}
	if ev.ByHash {
		a.storeByHash(ev)
		return
	}
	if len(ev.Hashes) == 0 || ev.OtherKind() {
		return
	}
	ks := h.lockKeyspace(&ev.Scope)
	if ks == nil {
		res.Dropped += len(ev.Hashes)
		return
	}
	sh := ks.sh
	defer sh.mu.Unlock()
	slot, ok := sh.slotFor(h)
	if !ok {
		res.Dropped += len(ev.Hashes)
		return
	}
	before := ks.blocks()
	r := &sh.event
	*r = segment{ks: ks, slot: slot, tier: ev.Tier, full: a.batch.Full, tick: a.tick, end: a.endOf(ev), hashes: ev.Hashes}
	if ev.Tier == TierGPU && r.end != 0 {
		r.tier = tierLeased
	}
	sh.storeEvent(r, ev, res)
	a.x.blocks.Add(int64(ks.blocks() - before))
}

// storeByHash stores the blocks of an event that does not describe them, as far as other
// events of the holder have.
func (a *applying) storeByHash(ev *Event) {
	rest, end := ev.Hashes, a.endOf(ev)
	of := func(k *shardKey) bool {
		return k.modelKey() == ev.Scope.modelKey() && k.group == ev.Scope.Group && ev.Tier != TierGPU
	}
	for sh, slot := range a.h.in(of) {
		before := sh.blocks()
		var missing []uint64
		for i, hash := range rest {
			ks, at := sh.find(slot, hash, nil)
			if ks == nil {
				missing = append(missing, hash)
				continue
			}
			sh.keys = append(sh.keys[:0], at.key)
			sh.store(&segment{ks: ks, slot: slot, tier: ev.Tier, full: a.batch.Full, tick: a.tick, end: end, keys: sh.keys, hashes: rest[i : i+1]}, a.res)
		}
		rest = missing
		a.x.blocks.Add(int64(sh.blocks() - before))
	}
	a.res.Dropped += len(rest)
}

// lockKeyspace returns a scope's tables with their writer's lock held, nil if there can be none.
// h.mu is held.
func (h *holder) lockKeyspace(s *Scope) *keyspace {
	for {
		ks := h.last.of(h.x, s)
		if ks == nil {
			ks = h.x.keyspace(*s, h.self.Replica)
		}
		if ks == nil {
			return nil
		}
		ks.sh.mu.Lock()
		if !ks.dropped && !h.x.closed.Load() {
			return ks
		}
		ks.sh.mu.Unlock() // sweep drained it just now: it is made again, unless the index is closed
	}
}

// storeEvent stores the blocks of an event. It leaves out blocks on GPU, as strays, if the holder lacks
// one before them, and blocks whose parent's key is needed for theirs and is not known.
func (sh *shard) storeEvent(r *segment, ev *Event, res *Result) {
	before, known, here := uint64(r.ks.root), true, true // the key of the parent
	if ev.HasParent {
		ks, at := sh.find(r.slot, ev.Parent, r.ks)
		r.before, before, known = at.place, at.key, ks == r.ks
		here = known && at.place != 0
		switch {
		case known:
		case ev.Content == nil:
			before = hashtable.KeyOf(ev.Parent)
		default:
			before = sh.info[r.slot].strays.of[ev.Parent].key
		}
	}
	keys, link := sh.keys[:0], prefixhash.Key(before)
	for i, hash := range ev.Hashes {
		if ev.Content != nil {
			link = prefixhash.Link(link, ev.Content[i])
			hash = uint64(link)
		}
		keys = append(keys, hashtable.KeyOf(hash))
	}
	sh.keys, r.keys = keys, keys
	switch {
	case r.tier == TierGPU && !here:
		sh.leaveOut(r, before)
		res.Orphaned += len(ev.Hashes)
	case !known && ev.Content != nil:
		res.Orphaned += len(ev.Hashes)
	default:
		if stored := sh.store(r, res); len(stored) > 0 {
			sh.rejoin(*r, stored)
		}
	}
}

// minutes returns a time in the unit in which nodes keep their last store.
func minutes(t time.Time) uint16 { return uint16(t.Unix() / 60) }
