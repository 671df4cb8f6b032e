// Package testenv is the testbed of the real parts: it starts Envoy, vLLM and
// warmroute's own binaries for tests and benchmarks, and asks them.
//
// The invariant: every process it starts is stopped, with its children, when the
// test or the program that started it ends. Nothing here is linked into a shipped
// binary.
//
// Units: durations are time.Duration, sizes are bytes. Ask is safe for concurrent
// use; a Process belongs to the goroutine that started it.
package testenv
