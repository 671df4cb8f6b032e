// Package vllm holds the live tests: two real vLLM replicas per version behind
// real Envoy with extproc in the shipped body mode. They run with -tags vllm
// (make test-vllm); one fixture serves all tests of a version. Two fixtures are
// up at a time: while one is asked request by request, the next one boots.
// TestHybrid does the same with models of several KV cache groups.
//
// TestCoded asks a render server of each model whose chats vLLM renders in code; all of
// them are in one Python process (test/oracle/render.py).
//
// TestScheduler boots nothing: it drives vLLM's own scheduler (test/oracle) over
// many kinds of caches and releases, and holds the router's predictions to it.
package vllm
