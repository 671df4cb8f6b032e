// Package hybrid gives simulated engines the scheduler and the KV cache of
// lab/vllmsim, for models with several KV cache groups: they store, evict and hit the
// same blocks as vLLM's own code.
//
// The invariant: a Replica hits the blocks of its caches by vLLM's rule over all groups,
// and its Changes are its KV events, without events of generated blocks.
//
// Units: tokens. A Replica belongs to one goroutine.
package hybrid
