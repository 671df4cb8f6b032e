package index

import (
	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/radix"
)

// segment is consecutive blocks of one holder in one tier.
type segment struct {
	ks     *keyspace
	slot   int
	tier   Tier
	full   bool
	tick   uint16
	end    int64       // when the blocks end, Unix nanoseconds; 0: they do not
	before radix.Place // on GPU: of the block before the first; 0: they begin prompts
	keys   []uint64    // the blocks
	hashes []uint64    // of the blocks, by their holder
}

// reference is a stored block: a place, if the holder has it and all before it on GPU,
// otherwise its key alone.
type reference struct {
	place radix.Place
	key   uint64
}

// find finds a block of a slot by its hash, below the GPU in the keyspace in alone, if that is not
// nil. It returns the block's keyspace, nil if the block is not known.
func (sh *shard) find(slot int, hash uint64, in *keyspace) (*keyspace, reference) {
	info := &sh.info[slot]
	if p := info.gpu.Find(hash); p != 0 {
		return sh.keyspaces[sh.nodes.Tree(p)], reference{p, sh.nodes.Key(p)}
	}
	if t, ok := info.twins.of[hash]; ok && info.gpu.Has(t.place, t.key) {
		return sh.keyspaces[sh.nodes.Tree(t.place)], reference{t.place, t.key}
	}
	for i, keys := range info.lower {
		if in != nil && in.index != i {
			continue
		}
		if key := keys.Get(hash); key != 0 {
			return sh.keyspaces[i], reference{key: key}
		}
	}
	return nil, reference{}
}

// store stores the blocks of a segment, and returns those that have strays behind them.
func (sh *shard) store(r *segment, res *Result) []radix.Place {
	w := storing{sh: sh, segment: r, res: res, info: &sh.info[r.slot], keys: r.keys, hashes: r.hashes, at: r.before}
	w.free = min(sh.x.o.MaxScopeBlocks-r.ks.blocks(), sh.x.o.MaxBlocks-int(sh.x.blocks.Load()))
	if r.tier != TierGPU {
		w.storeLower()
	} else {
		for len(w.keys) > 0 && w.storeSome() {
		}
	}
	if n := len(w.keys); n > 0 {
		res.Dropped += n
		w.info.noteRefused(w.keys, w.capped)
	}
	return w.before
}

// maxRefused bounds the keys of refused blocks that are kept of a holder in a shard.
const maxRefused = 1024

// noteRefused remembers why blocks are missing.
func (i *slotInfo) noteRefused(keys []uint64, capped bool) {
	if i.capped = i.capped || capped; capped {
		return
	}
	if i.refused == nil || len(i.refused) >= maxRefused {
		i.refused = map[uint64]struct{}{}
	}
	for _, key := range keys[:min(len(keys), maxRefused)] {
		i.refused[key] = struct{}{}
	}
}

// storing is the state while a segment is stored.
type storing struct {
	sh      *shard
	segment *segment
	res     *Result
	info    *slotInfo

	keys, hashes []uint64      // of the blocks left to store
	at           radix.Place   // of the block before them
	before       []radix.Place // of the blocks that were stored, those before strays
	free         int           // blocks that the caps still allow
	capped       bool          // the caps allow no more
}

// done removes n blocks from the segment, which are stored from p on.
func (w *storing) done(p radix.Place, n int) {
	w.keys, w.hashes = w.keys[n:], w.hashes[n:]
	w.at = p + radix.Place(n-1)
}

// storeSome stores at least one of the next blocks, behind a block that the holder has with
// all blocks before it, or returns false.
func (w *storing) storeSome() bool {
	nodes, key, n := &w.sh.nodes, w.keys[0], len(w.keys)
	if w.at != 0 && nodes.Has(w.at+1, key) {
		return w.existing(w.at+1, n)
	}
	if head := w.segment.ks.tree.Head(w.at, key); head != 0 {
		return w.existing(head, n)
	}
	if w.at != 0 && nodes.IsEnd(w.at) {
		return w.extend(n)
	}
	return w.begin(n)
}

// existing stores blocks that are in the nodes from p on.
func (w *storing) existing(p radix.Place, n int) bool {
	n = w.sh.nodes.Common(p, w.keys[:n])
	held := w.info.gpu.Held(p.Node()) - p.Offset()
	if held < 0 {
		return false
	}
	if held > 0 {
		return w.storeAgain(p, min(n, held))
	}
	if n = w.info.gpu.Record(p, w.hashes[:n]); n == 0 {
		return false
	}
	if !w.info.gpu.Add(p, n, w.segment.tick) {
		w.info.gpu.Erase(w.hashes[:n])
		return false
	}
	w.stored(p, n)
	return true
}

// stored counts n new blocks of the holder.
func (w *storing) stored(p radix.Place, n int) {
	w.info.blocks[TierGPU] += n
	w.res.Stored += n
	w.sh.hybrid.Stored(w.segment.slot, p, w.hashes[:n])
	if len(w.info.strays.of) > 0 {
		w.join(p, n)
	}
	w.done(p, n)
}

// storeAgain counts blocks that the holder already has at p.
func (w *storing) storeAgain(p radix.Place, n int) bool {
	for i := range n {
		switch w.info.gpu.Find(w.hashes[i]) {
		case p + radix.Place(i):
			w.countCopy(w.keys[i])
			continue
		case 0:
			if w.storeTwin(w.hashes[i], w.keys[i], p+radix.Place(i)) {
				continue
			}
		}
		w.done(p, i) // a hash of another block
		return false
	}
	w.done(p, n)
	return true
}

// extend appends new blocks to the end of a node.
func (w *storing) extend(n int) bool {
	p := w.at + 1
	n = w.admit(min(n, radix.MaxNode-p.Offset()), p.Node())
	if n == 0 {
		return false
	}
	w.sh.nodes.Reserve(p, w.keys[:n], w.hashes)
	if n = w.info.gpu.Record(p, w.hashes[:n]); n == 0 {
		return false
	}
	w.sh.nodes.Append(p, n, w.segment.slot, w.segment.tick)
	w.stored(p, n)
	return true
}

// begin makes a node of new blocks.
func (w *storing) begin(n int) bool {
	n = w.admit(min(n, radix.MaxNode), w.at.Node())
	if n == 0 {
		return false
	}
	tree := &w.segment.ks.tree
	p := tree.New(w.keys[:n], w.hashes)
	if p == 0 {
		return false
	}
	if n = w.info.gpu.Record(p, w.hashes[:n]); n == 0 {
		tree.Cancel(p)
		return false
	}
	tree.Begin(p, w.at, n, w.segment.slot, w.segment.tick)
	w.info.gpu.Joined(p)
	w.stored(p, n)
	return true
}

// admit returns how many of n new blocks the caps allow. It evicts blocks to make room, but
// none of the spared node.
func (w *storing) admit(n int, spare uint32) int {
	if short := n - w.free; short > 0 {
		w.free += w.sh.evict(w.segment.ks, short, spare)
	}
	w.capped = n > w.free
	n = max(0, min(n, w.free))
	w.free -= n
	return n
}

// storeLower stores blocks in a tier besides the GPU's nodes.
func (w *storing) storeLower() {
	sh, ks, tier := w.sh, w.segment.ks, w.segment.tier
	t, names := ks.flat(&ks.lower[tier]), w.names()
	for ; len(w.keys) > 0; w.keys, w.hashes = w.keys[1:], w.hashes[1:] {
		key, hash := w.keys[0], w.hashes[0]
		if names != nil {
			if was := names.Get(hash); was != 0 && was != key {
				return
			}
		}
		s := t.Insert(key)
		had := sh.rowHas(s, w.segment.slot)
		if !had && (s.Set() == 0 && w.admit(1, 0) == 0 || !sh.toggleIn(t, t.Find(key), w.segment.slot)) {
			return
		}
		if names != nil {
			names.Put(hash, key)
		}
		if end := w.segment.end; end != 0 {
			w.info.holder.expire(expiring{ks, tier, hash}, end, had)
		}
		if had {
			w.countCopy(key)
			continue
		}
		w.info.blocks[tier]++
		w.res.Stored++
	}
}

// names returns the keys by hashes of the holder's blocks below the GPU; nil if the hashes are the
// keys.
func (w *storing) names() *hashtable.Map {
	i := w.segment.ks.index
	if w.segment.tier == tierLeased {
		return nil
	}
	if names := w.info.lower[i]; names != nil {
		return names
	}
	if w.info.lower == nil {
		w.info.lower = map[int]*hashtable.Map{}
	}
	names := new(hashtable.Map)
	names.Init(&w.sh.x.pool)
	w.info.lower[i] = names
	return names
}

func (w *storing) countCopy(key uint64) {
	w.res.Repeated++
	if !w.segment.full {
		w.sh.copies[copyKey{int32(w.segment.ks.index), int32(w.segment.slot), w.segment.tier, key}]++
	}
}
