package index

import (
	"errors"
	"sync/atomic"

	"warmroute/prefixhash"
)

// ErrIncarnation means that the batch is of an incarnation that is not current:
// the holder was begun again, removed, or expired. Call Begin and send what the
// holder has.
var ErrIncarnation = errors.New("index: the batch's incarnation is not current")

// ErrClosed means that the index is closed.
var ErrClosed = errors.New("index: closed")

// Apply brings the index up to date with one batch. Lookups may see a part of
// it while it runs. Errors are ErrIncarnation and ErrClosed; then nothing has
// changed.
func (x *Index) Apply(b *Batch) (Result, error) {
	var res Result
	if x.closed.Load() {
		return res, ErrClosed
	}
	h := x.known(b.Holder)
	if h == nil {
		return res, ErrIncarnation
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.incarnation == 0 || b.Incarnation != h.incarnation {
		return res, ErrIncarnation
	}
	now := x.o.Now()
	x.seeFrom(h.id, b.published(now).UnixNano(), now.UnixNano())
	tick := uint64(now.Unix()/60) & 0xffff
	for i := range b.Events {
		ev := &b.Events[i]
		switch ev.Kind {
		case Stored:
			x.stored(h, ev, b.Full, tick, &res)
		case Removed:
			x.removed(h, ev, &res)
		case Cleared:
			h.clear()
		default:
			res.Dropped += len(ev.Engine)
		}
	}
	x.dropped.Add(uint64(res.Dropped))
	return res, nil
}

func (x *Index) stored(h *holder, ev *Event, full bool, tick uint64, res *Result) {
	if ev.Scope.Scheme == "" || ev.Tier >= tiers || ev.Content != nil && len(ev.Content) != len(ev.Engine) {
		res.Dropped += len(ev.Engine)
		return
	}
	h.sawGroup(ev.Scope, ev.GroupKind)
	if len(ev.Engine) == 0 || ev.GroupKind == GroupOther {
		return
	}
	sp := x.lockSpace(ev.Scope)
	if sp == nil {
		res.Dropped += len(ev.Engine)
		return
	}
	d := sp.d
	defer d.mu.Unlock()
	seat, ok := d.seatFor(h)
	if !ok {
		res.Dropped += len(ev.Engine)
		return
	}
	d.settle(len(ev.Engine))
	before := sp.blocks()
	r := run{sp: sp, seat: seat, tier: ev.Tier, full: full, tick: tick, engines: ev.Engine, hasParent: ev.HasParent, parent: keyOf(ev.Parent)}
	if ev.Content == nil {
		sp.plain = true
		d.keys = appendKeys(d.keys[:0], ev.Engine)
		r.keys, r.engines = d.keys, nil
		d.store(&r, res)
	} else {
		d.storeLinked(&r, ev.Content, ev.Parent, res)
	}
	x.blocks.Add(int64(sp.blocks() - before))
	r.cancel(h.id)
}

// lockSpace returns a scope's tables with their writer's lock held.
func (x *Index) lockSpace(s Scope) *space {
	for {
		sp := x.space(s)
		if sp == nil {
			return nil
		}
		sp.d.mu.Lock()
		if !sp.dropped && !x.closed.Load() {
			return sp
		}
		sp.d.mu.Unlock() // drained just now: it will be made anew, or not when closed
	}
}

// keyOf is the key of a foreign hash: itself, but never 0, which means "none".
func keyOf(hash uint64) uint64 {
	if hash == 0 {
		return 1
	}
	return hash
}

func appendKeys(dst, hashes []uint64) []uint64 {
	for _, h := range hashes {
		dst = append(dst, keyOf(h))
	}
	return dst
}

// storeLinked stores blocks known by engine hash and content, and those that
// waited for them. Blocks whose parent is not known wait in turn.
func (d *domain) storeLinked(r *run, contents []prefixhash.Content, parent uint64, res *Result) {
	root := uint64(r.sp.root)
	if r.hasParent {
		entry := d.engines.find(parent)
		if !entry.found() || entry.space() != r.sp.index {
			d.park(r, parent, contents, res)
			return
		}
		root = entry.key()
	}
	r.parent = root
	d.keys = linkAll(d.keys[:0], root, contents)
	r.keys = d.keys
	d.store(r, res)
	if len(d.joined) > 0 {
		stored := *r
		stored.keys = append([]uint64(nil), r.keys...)
		d.join(res)
		*r = stored
	}
}

func linkAll(dst []uint64, parent uint64, contents []prefixhash.Content) []uint64 {
	k := prefixhash.Key(parent)
	for _, c := range contents {
		k = prefixhash.Link(k, c)
		dst = append(dst, uint64(k))
	}
	return dst
}

// run is consecutive blocks of one holder in one tier.
type run struct {
	sp        *space
	seat      int
	tier      Tier
	full      bool
	tick      uint64
	hasParent bool
	parent    uint64 // key of the block before the first, when hasParent
	keys      []uint64
	engines   []uint64 // nil: stored by key alone
}

// cancel ends speculation about what was just reported.
func (r *run) cancel(id HolderID) {
	if r.tier == TierGPU {
		r.sp.cancel(id, r.keys)
	}
}

// ahead is how many blocks are touched before they are worked on, so that
// their cache misses overlap; about what a core can have in flight.
const ahead = 16

func (d *domain) store(r *run, res *Result) {
	engine := flipper{sets: &d.sets, seat: r.seat}
	w := storing{d: d, run: r, res: res, flip: flipper{sets: &d.sets, seat: r.seat}}
	w.start()
	sink := uint64(0)
	for i, key := range r.keys {
		if i%ahead == 0 {
			sink += d.prepare(r, i, min(i+ahead, len(r.keys)))
		}
		if r.engines != nil {
			if !d.engines.hold(r.engines[i], key, r.sp.index, &engine) {
				res.Dropped += len(r.keys) - i
				break
			}
			if d.orphans.blocks > 0 {
				d.orphans.wake(r.engines[i], &d.joined)
			}
		}
		if !w.block(key) {
			res.Dropped++
			d.partial.put(r.seat, true)
			if r.engines != nil {
				d.engines.release(d.engines.find(r.engines[i]), &engine)
			}
		}
	}
	d.sink = sink
	w.flip.flush()
	engine.flush()
}

// prepare starts loading what storing some blocks will read.
func (d *domain) prepare(r *run, from, to int) (sink uint64) {
	if r.engines != nil {
		for _, hash := range r.engines[from:to] {
			sink += d.engines.touch(hash)
		}
	}
	for _, key := range r.keys[from:to] {
		sink += r.sp.gpu.touch(key)
	}
	if r.engines != nil {
		for _, hash := range r.engines[from:to] {
			sink += d.engines.touchRoom(hash)
		}
	}
	return sink
}

// storing is the state while a run is stored.
type storing struct {
	d    *domain
	run  *run
	res  *Result
	flip flipper

	prev    uint64 // the block before, when linked
	before  uint64 // and the one before that, while a block is stored
	linked  bool
	slot    *slot // its slot, valid while builds stands
	builds  uint64
	visible bool // the holder has every block up to prev
	room    int  // blocks the caps leave
}

func (w *storing) start() {
	x, sp := w.d.x, w.run.sp
	w.room = min(x.o.MaxScopeBlocks-sp.blocks(), x.o.MaxBlocks-int(x.blocks.Load()))
	w.visible = !w.run.hasParent
	if w.run.tier != TierGPU || !w.run.hasParent {
		return
	}
	w.prev, w.linked = w.run.parent, true
	w.slot, _ = sp.gpu.insert(w.prev)
	w.visible = w.d.slotHas(w.slot, w.run.seat)
	w.builds = sp.gpu.builds
}

// block stores the next block; false means there was no room.
func (w *storing) block(key uint64) bool {
	d, sp, seat := w.d, w.run.sp, w.run.seat
	if w.run.tier != TierGPU {
		return w.beside(&sp.lower[w.run.tier], key)
	}
	t := sp.gpu
	t.pin = w.prev // a rebuild must not lose its links
	s, made := t.insert(key)
	if t.builds != w.builds {
		w.builds = t.builds
		if w.linked {
			w.slot = t.find(w.prev)
		}
	}
	cur := setID(s.val & valSet)
	if made || cur == 0 {
		switch {
		case w.linked:
			sp.adopt(w.slot, key)
		case w.prev == 0:
			atomic.StoreUint64(&s.val, s.val|valFirst)
		}
	}
	w.before, w.prev, w.linked, w.slot = w.prev, key, true, s
	if cur != 0 && d.sets.has(cur, seat) {
		w.visible = true
		w.repeat(key)
		return true
	}
	if !w.visible {
		t.pin = key
		return w.beside(&sp.stranded, key)
	}
	if cur == 0 {
		if w.room <= 0 && !w.makeRoom(key) {
			w.visible = false
			return false
		}
		w.room--
	}
	to, ok := w.flip.next(cur)
	if !ok {
		w.visible = false
		return false
	}
	if cur == 0 {
		t.live[t.partOf(key)]++
	}
	atomic.StoreUint64(&s.val, s.val&(valMulti|valFirst)|uint64(to)|w.run.tick<<valTick)
	d.info[seat].blocks[TierGPU]++
	w.res.Stored++
	if d.info[seat].stranded > 0 {
		w.flip.flush()
		d.promote(sp, s, seat)
	}
	return true
}

// beside stores a block in a table without order.
func (w *storing) beside(p *atomic.Pointer[table], key uint64) bool {
	d, seat := w.d, w.run.seat
	t := w.run.sp.flat(p)
	s, _ := t.insert(key)
	if d.slotHas(s, seat) {
		w.repeat(key)
		return true
	}
	if s.val&valSet == 0 {
		if w.room <= 0 && !w.makeRoom(key) {
			return false
		}
		w.room--
	}
	w.flip.flush()
	if !d.flipSlot(t, s, seat) {
		return false
	}
	d.info[seat].blocks[w.run.tier]++
	if w.run.tier == TierGPU {
		d.info[seat].stranded++
	}
	w.res.Stored++
	return true
}

func (w *storing) repeat(key uint64) {
	w.res.Repeated++
	if !w.run.full {
		w.d.copies[copyKey{int32(w.run.sp.index), int32(w.run.seat), w.run.tier, key}]++
	}
}

// makeRoom evicts a block, but never the one about to be stored nor the one it
// is linked to.
func (w *storing) makeRoom(key uint64) bool {
	w.flip.flush()
	if !w.d.evict(w.run.sp, key, w.before) {
		return false
	}
	w.room++
	return true
}
