// Package cachegroups has vLLM's rule for looking a prompt up in a cache with
// several groups: full attention with windows, chunks or Mamba states, and with
// speculative decoding.
//
// A Geometry describes the groups of one cache. Its Hit returns the tokens that vLLM
// reuses from the cache, given which blocks are held: the fixed point over groups
// that vLLM computes, in both generations of its rule (0.21 and 0.32). Its Bound
// is a lower bound of the hits of every cache with such blocks, whatever its groups
// are. Guesses keeps the settings that KV events lack (which groups drop a block
// for a draft model, the chunk, the replayed window) as competing assumptions, and
// chooses among them by the hits that vLLM reports.
//
// Invariant: nothing here depends on how blocks are stored or joined with prompts;
// a Prober reports which are held. Units are tokens unless noted. A Geometry is immutable
// and may be used concurrently; Guesses is not for concurrent use. The hit rule
// allocates nothing.
package cachegroups
