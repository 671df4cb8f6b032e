package index

import (
	"errors"
	"time"

	"warmroute/index/internal/hashtable"
	"warmroute/prefixhash"
)

// ErrIncarnation means that the batch is of an incarnation that is not current:
// the holder was begun again, removed, or expired. Call Begin and send what the
// holder has.
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
	res := &h.result
	now := x.o.Now()
	x.noteReportAt(h.id, b.published(now).UnixNano(), now.UnixNano())
	tick := minutes(now)
	h.learnGroups(b)
	for i := 0; i < len(b.Events); i++ {
		ev := &b.Events[i]
		reported, dense := h.groupEvent(b.Events[i:])
		if reported > 0 {
			i += reported - 1
			continue
		}
		switch ev.Kind {
		case Stored:
			if !dense {
				h.sawGroup(ev.Scope, ev.GroupKind)
				continue
			}
			x.stored(h, ev, b.Full, tick, res)
		case Removed:
			x.removed(h, ev, res)
			h.review(ev)
		case Cleared:
			h.clear()
			h.clearGroups()
		default:
			res.Dropped += len(ev.Engine)
		}
	}
	x.dropped.Add(uint64(res.Dropped))
	return *res, nil
}

func (x *Index) stored(h *holder, ev *Event, full bool, tick uint16, res *Result) {
	if ev.Scope.Scheme == "" || ev.Tier >= tiers || ev.Content != nil && len(ev.Content) != len(ev.Engine) {
		res.Dropped += len(ev.Engine)
		return
	}
	if len(ev.Engine) == 0 || ev.GroupKind == GroupOther {
		h.sawGroup(ev.Scope, ev.GroupKind)
		return
	}
	ks := h.lockLast(ev)
	if ks == nil {
		h.sawGroup(ev.Scope, ev.GroupKind)
		if ks = x.lockKeyspace(ev.Scope); ks == nil {
			res.Dropped += len(ev.Engine)
			return
		}
		h.last = lastStored{ev.Scope, ev.GroupKind, ks}
	}
	sh := ks.sh
	defer sh.mu.Unlock()
	slot, ok := sh.slotFor(h)
	if !ok {
		res.Dropped += len(ev.Engine)
		return
	}
	sh.settle(len(ev.Engine))
	before := ks.blocks()
	r := &sh.event
	*r = segment{ks: ks, slot: slot, tier: ev.Tier, full: full, tick: tick, engines: ev.Engine, hasParent: ev.HasParent}
	if ev.Content == nil {
		sh.storePlain(r, ev.Parent, res)
	} else {
		sh.storeLinked(r, ev.Content, ev.Parent, res)
	}
	x.blocks.Add(int64(ks.blocks() - before))
	r.cancel(h.id)
}

// lockLast returns the tables of the event's scope with their writer's lock held,
// when the event before it was of that scope and kind too, else nil.
func (h *holder) lockLast(ev *Event) *keyspace {
	l := &h.last
	if l.keyspace == nil || ev.GroupKind != l.kind || ev.Scope != l.scope {
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
func (x *Index) lockKeyspace(s Scope) *keyspace {
	for {
		ks := x.keyspace(s)
		if ks == nil {
			return nil
		}
		ks.sh.mu.Lock()
		if !ks.dropped && !x.closed.Load() {
			return ks
		}
		ks.sh.mu.Unlock() // drained just now: it is made again, unless the index is closed
	}
}

func appendKeys(dst, hashes []uint64) []uint64 {
	for _, h := range hashes {
		dst = append(dst, hashtable.KeyOf(h))
	}
	return dst
}

// storePlain stores blocks whose engine hashes are the keys.
func (sh *shard) storePlain(r *segment, parent uint64, res *Result) {
	if r.hasParent {
		var known bool
		if r.parent, known = sh.resolve(r.ks, r.slot, parent); !known {
			r.parent = reference{key: hashtable.KeyOf(parent)}
		}
	}
	sh.keys = appendKeys(sh.keys[:0], r.engines)
	r.keys = sh.keys
	sh.store(r, res)
}

// storeLinked stores blocks known by engine hash and content, and those that
// waited for them. Blocks whose parent is not known wait in turn.
func (sh *shard) storeLinked(r *segment, contents []prefixhash.Content, parent uint64, res *Result) {
	root := uint64(r.ks.root)
	if r.hasParent {
		at, known := sh.resolve(r.ks, r.slot, parent)
		if !known {
			sh.addOrphan(r, parent, contents, res)
			return
		}
		r.parent, root = at, at.key
	}
	sh.keys = linkAll(sh.keys[:0], root, contents)
	r.keys = sh.keys
	sh.store(r, res)
	if len(sh.joined) > 0 {
		stored := *r
		stored.keys = append([]uint64(nil), r.keys...)
		sh.storeJoined(res)
		*r = stored
	}
}

func linkAll(dst []uint64, parent uint64, contents []prefixhash.Content) []uint64 {
	k := prefixhash.Key(parent)
	for _, c := range contents {
		k = prefixhash.Link(k, c)
		dst = append(dst, hashtable.KeyOf(uint64(k)))
	}
	return dst
}

// minutes is a time as nodes keep it, to compare their ages.
func minutes(t time.Time) uint16 { return uint16(t.Unix() / 60) }
