// Package vllm holds the live tests: two real vLLM replicas of a release and a model
// behind real Envoy with extproc in the shipped body mode. They run with -tags vllm.
// TestLive (make test-live) shows on one such pair all that this release and model
// can show, dense or with several KV cache groups; two pairs are up at a time.
//
// The dense pair of 0.32 has a third replica, and all three hand KV blocks to each other
// over NIXL: its last part (make test-live-pd runs it alone) has prefill and decode apart.
//
// The others (make test-reference) boot nothing. TestCoded calls a render server of
// each model whose chats vLLM renders in code; all of them are in one Python process
// (render/testkit/oracle/render.py). TestScheduler drives vLLM's own scheduler (scheduler.py)
// over many kinds of caches and releases, and compares the router's predictions with it.
package vllm
