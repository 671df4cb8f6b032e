package simulator

import (
	"maps"
	"slices"
)

// Scheduler forms an engine's batches and keeps its KV cache, in place of this
// package's own: package hybrid has one for caches of several groups.
type Scheduler interface {
	Enqueue(r *Request)
	// Begin forms a batch, false where there is nothing to do.
	Begin() (Batch, bool)
	// End completes it: what the caches published, and the requests whose first or
	// last token came, with their Hit set.
	End() (changes []Change, first, done []*Request)
	Load() Page
}

// Batch is what an engine computes in one step.
type Batch struct {
	Prompt  int     // tokens of prompts
	Answers int     // tokens of answers
	Pairs   float64 // (query, key) pairs of the prompts' attention
	Context float64 // tokens of context that the answers' attention reads
	Running int     // sequences
}

// Change is what a KV cache group stored or removed, as an event says it.
type Change struct {
	Group     int
	Kind      string // vLLM's name of it
	Window    int    // tokens, of a sliding window
	Removed   bool
	HasParent bool
	Parent    int32 // of Blocks[0], stored
	Blocks    []int32
	Tokens    int // covered: more than the blocks' where some are not kept
}

// Full reports whether the group's blocks are those of full attention.
func (c *Change) Full() bool { return c.Kind == "full_attention" }

// beginScheduled is begin with batches from elsewhere.
func (e *engine) beginScheduled(now float64) {
	var b Batch
	if b, e.busy = e.scheduler.Begin(); !e.busy {
		return
	}
	hw := e.hw
	e.computed += int64(b.Prompt)
	e.took(now, hw.Step+max(hw.Weights, hw.PrefillToken*float64(b.Prompt+b.Answers))+hw.PrefillPair*b.Pairs+hw.DecodeToken*b.Context+hw.Sequence*float64(b.Running))
}

// publish completes a batch from elsewhere, and lists what full attention stored
// and removed of a cache that has each block once.
func (e *engine) publish() {
	e.changes, e.first, e.done = e.scheduler.End()
	was := map[int32]bool{}
	for i := range e.changes {
		c := &e.changes[i]
		if !c.Full() {
			continue
		}
		for _, b := range c.Blocks {
			if _, seen := was[b]; !seen {
				was[b] = e.copies[b] > 0
			}
			if c.Removed {
				e.copies[b]--
			} else {
				e.copies[b]++
			}
		}
	}
	for _, b := range slices.Sorted(maps.Keys(was)) {
		switch has := e.copies[b] > 0; {
		case has && !was[b]:
			e.cache.stored = append(e.cache.stored, b)
		case !has && was[b]:
			e.cache.removed = append(e.cache.removed, b)
			delete(e.copies, b)
		}
	}
}
