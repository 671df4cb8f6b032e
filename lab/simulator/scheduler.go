package simulator

import (
	"math"
	"slices"
)

// Scheduler forms an engine's batches and keeps its KV cache. This package has a scheduler
// for caches of full attention alone, package hybrid one for several groups.
type Scheduler interface {
	Enqueue(r *Request)
	// Begin forms a batch; false: there is nothing to do.
	Begin() (Batch, bool)
	End() Ended
	Load() Page
}

// NewScheduler returns this package's scheduler for an engine on its own. Its
// requests have blocks of 16 tokens, whose ids are below blocks.
func NewScheduler(hw Hardware, blocks int) Scheduler { return NewDense(hw, blocks, page) }

// Engine is a Scheduler whose clients may leave.
type Engine interface {
	Scheduler
	Abort(r *Request) // drops a request whose client has left
}

// NewDense is NewScheduler for requests with blocks of that many tokens, a multiple of 16.
func NewDense(hw Hardware, blocks, block int) Engine { return newDense(hw, blocks, block) }

func newDense(hw Hardware, blocks, block int) *dense {
	return &dense{hw: &hw, cache: newCache(blocks, block, hw.Capacity), block: block, exact: true}
}

// NewTiered is NewDense with a tier below the GPU; now is the time.
func NewTiered(hw Hardware, blocks, block int, o *Tier, now *float64) Engine {
	d := newDense(hw, blocks, block)
	d.lower = newTier(o, nil, blocks, block)
	d.lower.now = now
	return d
}

// Ready returns when the first load from the tier is done that an engine without a batch waits for;
// infinite: it waits for none.
func (d *dense) Ready() float64 {
	first := math.Inf(1)
	for _, s := range d.loading {
		first = min(first, s.ready)
	}
	return first
}

// Abort drops a request whose client has left.
func (d *dense) Abort(r *Request) {
	same := func(s *sequence) bool { return s.r == r }
	d.waiting = slices.DeleteFunc(d.waiting, same)
	if i := slices.IndexFunc(d.loading, same); i >= 0 {
		d.release(d.loading[i])
		d.loading = slices.Delete(d.loading, i, i+1)
	}
	if i := slices.IndexFunc(d.running, same); i >= 0 {
		d.release(d.running[i])
		d.running = slices.Delete(d.running, i, i+1)
	}
}

// Ended is the outcome of a batch.
type Ended struct {
	Admitted        []*Request // requests that began in the batch, or went on after a preemption, in order; of this package's scheduler
	Stored, Removed []int32    // blocks of full attention that the batch added to the cache, or evicted
	Kept, Dropped   []int32    // blocks that the replica has copied to its CPU memory or the shared store, or that were evicted there
	Changes         []Change   // the groups' events, if the cache has several groups
	First, Done     []*Request // requests whose first or last token came, with Hit set
}

// Batch is the work of an engine in one step.
type Batch struct {
	Prompt  int     // tokens of prompts
	Answers int     // tokens of answers
	Pairs   float64 // (query, key) pairs of the prompts' attention
	Context float64 // tokens of context that the answers' attention reads
	Running int     // sequences
}

// Change has the blocks that a KV cache group stored or removed, like an event.
type Change struct {
	Group     int
	Kind      string // vLLM's name of it
	Window    int    // tokens, of a sliding window
	Removed   bool
	HasParent bool
	Parent    int32 // of Blocks[0], stored
	Blocks    []int32
	Tokens    int // covered: more than the blocks' if the group leaves some out
}

// Full reports whether the group's blocks are those of full attention.
func (c *Change) Full() bool { return c.Kind == "full_attention" }
