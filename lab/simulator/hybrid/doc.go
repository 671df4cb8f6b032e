// Package hybrid gives simulated engines the scheduler and the KV cache of
// lab/vllmsim, for models with several KV cache groups: what they store,
// evict and hit is what vLLM's own code does with such a model.
//
// The invariant: a Replica hits what its caches hold, by vLLM's rule over all
// groups, and its Changes are its KV events, those of generated blocks left out.
//
// Units: tokens. A Replica belongs to one goroutine.
package hybrid
