// Package vllm holds the live tests: two real vLLM replicas per version behind
// real Envoy with extproc in the shipped body mode. They run with -tags vllm
// (make test-vllm); one version is booted at a time, one fixture serves all of
// its tests.
package vllm
