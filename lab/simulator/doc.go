// Package simulator simulates a fleet of vLLM replicas under a trace of requests,
// to measure routing policies. Its other half, lab/simulator/brain, is the
// router's real decision as one of these policies.
//
// Replicas whose models have several KV cache groups are lab/simulator/hybrid:
// batches and cache are then vllmsim's.
//
// The replicas are modelled at the level of engine steps: continuous batching
// with chunked prefill, first come first served, a prefix cache with vLLM's
// eviction order, KV events published when a step ends. Not modelled:
// preemption, output tokens used again by the next turn, offloaded caches, the
// router's own time. The invariant: a policy sees only what a router could see
// (events after their delay, scraped numbers after their interval, its own
// routing), except the oracles, which are documented as such. A run is a function of its
// configuration, trace and seed.
//
// Units: seconds and tokens. A Sim belongs to one goroutine.
package simulator
