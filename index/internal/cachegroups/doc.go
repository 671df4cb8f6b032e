// Package cachegroups knows how vLLM looks a prompt up when its cache has
// several groups: full attention beside windows, chunks or Mamba states, and with
// speculative decoding.
//
// A Geometry is what one cache consists of. Its Hit gives the tokens that vLLM
// takes from the cache, given which blocks are held: the fixed point over groups
// that vLLM computes, in both generations of its rule (0.21 and 0.32). Its Bound
// is what every cache with such blocks hits at least, whatever its groups are.
// Guesses keeps the settings that KV events do not tell (which groups drop a block
// for a draft model, the chunk, the replayed window) as competing assumptions, and
// chooses by what vLLM reports.
//
// Invariant: nothing here depends on how blocks are stored or joined with prompts;
// it asks a Prober. Units are tokens unless said otherwise. A Geometry is immutable
// and may be used concurrently; Guesses is not for concurrent use. The hit rule
// allocates nothing.
package cachegroups
