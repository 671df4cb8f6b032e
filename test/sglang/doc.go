// Package sglang holds the tests with SGLang's own caches: its requests, allocators, radix
// tree and publishers run in processes without a model (replicas.py), behind real Envoy with
// extproc. They run with -tags vllm (make test-reference), because they need the Python of an
// installed vLLM.
package sglang
