// Package vllmsim is a simulated vLLM replica: the OpenAI-style HTTP routes, a
// paged KV cache with vLLM's own allocation, caching and eviction rules, KV
// events over ZeroMQ with replay, metrics, and a timing model.
//
// The invariant: for the same sequence of prompts and generated tokens, a
// replica publishes the batches a real vLLM publishes, byte for byte but for
// the time stamp (0.21.0 and 0.32.0; the package's tests replay captures of
// both). With several KV cache groups (windows, chunks, Mamba states; 0.32.0) the
// events of every step and the hits of every request are those of vLLM's own
// scheduler (TestScripts). It is written from vLLM's source and shares no code for keys or
// eviction with the router, so that a mistake there cannot hide here.
//
// With a KV connector, one replica computes a prompt and another one answers it, in two
// forms: NIXL's pulls, and a folder that all share. What both count is what two real
// replicas counted; but where vLLM takes another prompt's KV without an error, a simulated
// replica answers 500.
//
// Units: cache sizes are in blocks, block sizes and rates in tokens and tokens
// per second. A step of the engine takes
//
//	scheduled prompt tokens / PrefillRate + (any decode ? 1 / DecodeRate : 0)
//
// so that time to first token grows with uncached prompt length, with the
// queue and with the batch. It computes no model: answers are made-up words,
// without logits, sampling options and tool calls.
//
// Concurrency: any goroutine may call every method of Sim. Run returns after
// all goroutines that it started.
package vllmsim
