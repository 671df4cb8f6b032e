// Package simulator simulates a fleet of vLLM replicas under a trace of requests,
// to measure routing policies. Its other half, lab/simulator/brain, is the
// router's real decision as one of these policies.
//
// Package lab/simulator/hybrid has the replicas for models with several KV cache groups,
// with the batches and the cache of vllmsim.
//
// The replicas are modelled at the level of engine steps: continuous batching
// with chunked prefill, first come first served, caches that grow with the answers, preemption
// of the newest request when blocks run out, vLLM's eviction order, KV events published at the
// end of a step. On equal requests, vLLM's own scheduler admits them in the same order, with
// the same hits, and preempts as often (TestSchedulerSimulated in test/vllm). The model lacks
// batches that overlap (asynchronous scheduling), and the router's own time.
// The invariant: a policy has only the inputs of a router (events after their delay,
// scraped numbers after their interval, its own routing); oracles have more, and their
// comments say so. A run is a function of its configuration, trace and seed.
//
// Units: seconds and tokens. A Sim belongs to one goroutine.
package simulator
