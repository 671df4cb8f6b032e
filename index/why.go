package index

import (
	"time"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/radix"
	"warmroute/prefixhash"
)

// Loss says why the index dropped all blocks of a holder.
type Loss uint8

const (
	LossNone      Loss = iota // it did not: the holder has been followed since its first Begin
	LossCleared               // the holder cleared its cache
	LossRestarted             // its publisher began a new life
	LossEvents                // events were lost
	LossSilent                // it was silent for longer than ReplicaTTL
	LossBegun                 // Begin was called again for another cause
)

// Trail is the chain of one prompt, for Why. It is not for concurrent use.
type Trail struct {
	Keys  []prefixhash.Key
	Until time.Time      // later removals do not count; zero: all do
	until uint32         // the same; 0: all do
	at    map[uint64]int // depths by key; nil: not made yet
}

// Ending says how a holder's part of a prompt ends, and what the index knows of the block
// behind it.
type Ending struct {
	Blocks   int       // reported on GPU, from the start without a gap
	Removed  time.Time // when the holder removed the block behind them; zero: not remembered
	Branches bool      // the holder has another block behind the last of them
	Hidden   bool      // the holder's blocks prove nothing: full attention is not known among its groups
	Dropped  bool      // the index dropped blocks of the holder, to stay within its bounds
	Refused  bool      // the holder has reported the block behind them, in a way that could not be stored

	Since      time.Time // the index has followed the holder without a loss since; zero: never
	Loss       Loss      // what happened then
	Remembered time.Time // removals before this time are forgotten; zero: none is
}

// Lose records why the holder's blocks were dropped by the last Begin.
func (x *Index) Lose(self Holder, why Loss) {
	if h := x.known(self); h != nil {
		h.mu.Lock()
		h.loss = why
		h.mu.Unlock()
	}
}

// Why returns how a holder's part of a prompt ends, in one scope. It is for explanations:
// it takes the locks that ingest takes, for a time that the bounds of removals and the
// length of the prompt limit.
func (x *Index) Why(id HolderID, s Scope, t *Trail) (e Ending) {
	h := x.byID(id)
	if h == nil {
		return e
	}
	if !t.Until.IsZero() {
		t.until = max(1, x.tenths(t.Until.UnixNano()))
	}
	reader, r := x.enter()
	defer reader.Leave()
	h.mu.Lock()
	defer h.mu.Unlock()
	if ks := (*x.keyspaces.Load())[s]; ks != nil {
		ks.ending(r, h, t, &e)
	}
	if h.since != 0 {
		e.Since, e.Loss = time.Unix(0, h.since), h.loss
	}
	if e.Blocks < len(t.Keys) || t.until > 0 && len(t.Keys) > 0 {
		if at, ok := h.removals.find(t, min(e.Blocks, len(t.Keys)-1), s.Group); ok {
			e.Removed = x.timeOf(at)
		}
	}
	if h.removals.lost > 0 {
		e.Remembered = x.timeOf(h.removals.lost)
	}
	return e
}

// ending fills in what the nodes tell.
func (ks *keyspace) ending(r *scratch, h *holder, t *Trail, e *Ending) {
	sh := ks.sh
	sh.mu.Lock()
	defer sh.mu.Unlock()
	slot, ok := ks.slotOf(h)
	if !ok {
		return
	}
	m := h.memberOf(sh.key.modelKey())
	e.Dropped, e.Hidden = sh.info[slot].capped, m != nil && m.Unknown()
	gpu := &sh.info[slot].gpu
	r.path = ks.tree.Trace(r.path, t.Keys)
	last := radix.Place(0)
	for i := range r.path {
		one := &r.path[i]
		held := min(gpu.Held(one.Node()), int(one.Len))
		if held == 0 {
			break
		}
		e.Blocks, last = int(one.Depth)+held, radix.At(one.Node(), held-1)
		if held < int(one.Len) {
			break
		}
	}
	if e.Blocks < len(t.Keys) {
		_, e.Refused = sh.info[slot].refused[hashtable.KeyOf(uint64(t.Keys[e.Blocks]))]
	}
	e.Branches = last != 0 && (gpu.Held(last.Node()) > last.Offset()+1 || gpu.Branches(last))
}
