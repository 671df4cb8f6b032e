package index

import "slices"

// owner is the memory that an AllBlocksCleared is of. SimpleCPUOffloadConnector sends one for
// CPU memory that looks like the GPU's. vLLM publishes the events of the GPU before those of the
// connector in each batch.
type owner uint8

const (
	ofEither owner = iota
	ofGPU
	ofGPUProbably
	ofBelow
)

// ownerInBatch returns whose an AllBlocksCleared is, by the events of its batch.
func (a *applying) ownerInBatch(i int) owner {
	if !slices.ContainsFunc(a.h.members(), func(c *memberHost) bool { return c.member.Announces() }) {
		return ofGPUProbably // a tier may have been cleared with it
	}
	for k := range a.batch.Events[:i] {
		if ev := &a.batch.Events[k]; ev.Kind == Cleared || ev.Tier != TierGPU {
			return ofBelow
		}
	}
	for k := range a.batch.Events[i+1:] {
		if ev := &a.batch.Events[i+1+k]; ev.Kind == Cleared || ev.Tier == TierGPU {
			return ofGPU
		}
	}
	return ofEither
}

// clear applies an AllBlocksCleared. h.mu is held.
func (a *applying) clear(of owner) {
	h := a.h
	switch of {
	case ofEither:
		h.undecided = true
		for _, c := range h.members() {
			c.member.Undecided()
		}
		return
	case ofBelow:
		for _, c := range h.members() {
			c.member.ClearBelow(true)
		}
		return
	}
	a.clearGPU(nil)
	for _, c := range h.members() {
		c.member.Clear(of == ofGPU)
	}
}

// clearPart applies a clear of a part of the holder's cache.
func (a *applying) clearPart(of *Part) {
	a.clearGPU(of)
	for _, c := range a.h.members() {
		if of.coversModel(c.key) && !slices.ContainsFunc(a.h.shards, func(sh *shard) bool { return sh.key.modelKey() == c.key }) {
			c.member.Clear(false)
		}
	}
}

// clearGPU drops what the holder has of a part in GPU memory.
func (a *applying) clearGPU(of *Part) {
	a.res.Removed += a.h.clear(of)
	if len(a.h.shards) == 0 {
		a.h.since, a.h.loss = a.x.o.Now().UnixNano(), LossCleared
	}
}

// decide applies the AllBlocksCleared that may have been of either memory, by the next events of
// the GPU. After a clear of the GPU, the first of them stores the first block of a prompt.
func (a *applying) decide(i int) {
	h := a.h
	h.undecided = false
	of := a.ownerByNext(i)
	if of == ofBelow {
		for _, c := range h.members() {
			c.member.ClearBelow(false)
		}
		return
	}
	a.clearGPU(nil)
	for _, c := range h.members() {
		c.member.Clear(true) // it is in doubt already
		c.member.Decided(of == ofGPU)
	}
}

// ownerByNext returns whose the last AllBlocksCleared was, by the events from the ith on.
func (a *applying) ownerByNext(i int) owner {
	if slices.ContainsFunc(a.h.members(), func(c *memberHost) bool { return !c.member.Chained() }) {
		return ofGPUProbably
	}
	for k := range a.batch.Events[i:] {
		ev := &a.batch.Events[i+k]
		switch {
		case ev.Tier != TierGPU && ev.Kind != Cleared:
		case ev.Kind == Cleared:
			return ofGPUProbably
		case ev.Kind == Removed:
			return ofBelow // the GPU has blocks
		case ev.OtherKind() || len(ev.Hashes) == 0: // the block before its first need not be on the GPU
		case ev.HasParent:
			return ofBelow
		case len(ev.Hashes) > 1 && a.holds(ev):
			return ofGPU // otherwise the block would have been hit
		default:
			return ofGPUProbably
		}
	}
	return ofGPUProbably
}

// holds reports whether the holder has the first block of an event, and a prompt with more than
// this block would hit it.
func (a *applying) holds(ev *Event) bool {
	m := a.h.memberOf(ev.Scope.modelKey())
	return m != nil && m.HitsFirst() && m.OnGPU(ev.Scope.Group, ev.Hashes[0])
}
