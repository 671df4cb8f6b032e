package simulator

// Scheduler forms an engine's batches and keeps its KV cache. This package's own is
// for caches of full attention alone; package hybrid has one for several groups.
type Scheduler interface {
	Enqueue(r *Request)
	// Begin forms a batch, false where there is nothing to do.
	Begin() (Batch, bool)
	End() Ended
	Load() Page
}

// Ended is what a batch came to.
type Ended struct {
	Stored, Removed []int32    // blocks of full attention that are in the cache since, or no longer
	Changes         []Change   // what the groups published, where the cache has several
	First, Done     []*Request // whose first or last token came, with their Hit set
}

// Batch is what an engine computes in one step.
type Batch struct {
	Prompt  int     // tokens of prompts
	Answers int     // tokens of answers
	Pairs   float64 // (query, key) pairs of the prompts' attention
	Context float64 // tokens of context that the answers' attention reads
	Running int     // sequences
}

// Change is what a KV cache group stored or removed, as in an event.
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
