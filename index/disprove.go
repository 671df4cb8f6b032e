package index

import (
	"time"

	"warmroute/index/internal/radix"
	"warmroute/prefixhash"
)

// Disprove takes a block away from a holder, as if the holder had reported its removal: the block
// of a chain at depth, which a request sent at a time has not found there. The blocks behind it
// count no more until it is stored again. Disprove changes nothing if a report since then explains
// what was not found, or if cache groups decide the holder's hits. It reports whether the block
// is gone.
func (x *Index) Disprove(id HolderID, s Scope, keys []prefixhash.Key, depth int, sent time.Time) bool {
	h := x.byID(id)
	if h == nil || depth >= len(keys) {
		return false
	}
	if m := x.memberOf(id, s.modelKey()); m != nil && m.Grouped() {
		return false
	}
	reader, r := x.enter()
	defer reader.Leave()
	h.mu.Lock()
	defer h.mu.Unlock()
	at, known := h.removals.find(&Trail{Keys: keys}, depth, s.Group)
	since := x.tenths(sent.UnixNano())
	if known && at >= since || h.removals.lost > since || h.since >= sent.UnixNano() {
		return false
	}
	ks := (*x.keyspaces.Load())[s]
	if ks == nil {
		return false
	}
	sh := ks.sh
	sh.mu.Lock()
	defer sh.mu.Unlock()
	slot, ok := ks.slotOf(h)
	if !ok {
		return false
	}
	r.path = ks.tree.Trace(r.path, keys[:depth+1])
	if len(r.path) == 0 {
		return false
	}
	last := &r.path[len(r.path)-1]
	if last.Depth+last.Len <= int32(depth) { // no holder has the block
		return false
	}
	hash, ok := sh.info[slot].gpu.HashAt(radix.At(last.Node(), depth-int(last.Depth)))
	if !ok {
		return false
	}
	before, res := sh.blocks(), Result{}
	h.removals.at = x.tenths(x.o.Now().UnixNano())
	sh.remove(slot, TierGPU, []uint64{hash}, &res)
	x.blocks.Add(int64(sh.blocks() - before))
	return res.Removed > 0
}
