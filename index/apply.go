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
	ks := h.lockLast(ev)
	if ks == nil {
		if ks = a.x.lockKeyspace(ev.Scope, h.self.Replica); ks == nil {
			res.Dropped += len(ev.Hashes)
			return
		}
		h.last = lastStored{ev.Scope, ks}
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
	for _, sh := range a.h.shards {
		if sh.key.modelKey() != ev.Scope.modelKey() || sh.key.group != ev.Scope.Group || ev.Tier == TierGPU {
			continue
		}
		sh.mu.Lock()
		if slot, ok := sh.slots.Of(int32(a.h.id)); ok {
			before := sh.blocks()
			var missing []uint64
			for i, hash := range rest {
				ks, key := sh.find(slot, hash)
				if ks == nil {
					missing = append(missing, hash)
					continue
				}
				sh.keys = append(sh.keys[:0], key)
				sh.store(&segment{ks: ks, slot: slot, tier: ev.Tier, full: a.batch.Full, tick: a.tick, end: end, keys: sh.keys, hashes: rest[i : i+1]}, a.res)
			}
			rest = missing
			a.x.blocks.Add(int64(sh.blocks() - before))
		}
		sh.mu.Unlock()
	}
	a.res.Dropped += len(rest)
}

// lockLast returns the tables of the event's scope with their writer's lock held, if the
// event before it has the same scope, otherwise nil.
func (h *holder) lockLast(ev *Event) *keyspace {
	l := &h.last
	if ev.Scope != l.scope { // at first the empty scope, whose blocks store drops
		return nil
	}
	l.keyspace.sh.mu.Lock()
	if l.keyspace.dropped || h.x.closed.Load() {
		l.keyspace.sh.mu.Unlock()
		return nil
	}
	return l.keyspace
}

// lockKeyspace returns a scope's tables with their writer's lock held.
func (x *Index) lockKeyspace(s Scope, replica string) *keyspace {
	for {
		ks := x.keyspace(s, replica)
		if ks == nil {
			return nil
		}
		ks.sh.mu.Lock()
		if !ks.dropped && !x.closed.Load() {
			return ks
		}
		ks.sh.mu.Unlock() // sweep drained it just now: it is made again, unless the index is closed
	}
}

func appendKeys(dst, hashes []uint64) []uint64 {
	for _, h := range hashes {
		dst = append(dst, hashtable.KeyOf(h))
	}
	return dst
}

// storeEvent stores the blocks of an event. It leaves out blocks on GPU if the holder lacks one
// before them, and blocks whose parent's key is needed for theirs and is not known.
func (sh *shard) storeEvent(r *segment, ev *Event, res *Result) {
	root := uint64(r.ks.root)
	if ev.HasParent {
		at, known := sh.resolve(r.ks, r.slot, ev.Parent)
		if !known && ev.Content != nil || r.tier == TierGPU && (!known || at.place == 0) {
			res.Orphaned += len(ev.Hashes)
			return
		}
		r.before, root = at.place, at.key
	}
	if ev.Content == nil {
		sh.keys = appendKeys(sh.keys[:0], ev.Hashes)
	} else {
		sh.keys = linkAll(sh.keys[:0], root, ev.Content)
	}
	r.keys = sh.keys
	sh.store(r, res)
}

func linkAll(dst []uint64, parent uint64, contents []prefixhash.Content) []uint64 {
	k := prefixhash.Key(parent)
	for _, c := range contents {
		k = prefixhash.Link(k, c)
		dst = append(dst, hashtable.KeyOf(uint64(k)))
	}
	return dst
}

// minutes returns a time in the unit in which nodes keep their last store.
func minutes(t time.Time) uint16 { return uint16(t.Unix() / 60) }
