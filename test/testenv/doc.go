// Package testenv is the testbed of the real parts: it starts Envoy, vLLM and
// warmroute's own binaries for the end-to-end tests, and, as a Stage, everything
// that a comparison of routing needs on the loopback interface: simulated
// replicas behind a real Envoy, with the router or without.
//
// The invariants: every process it starts is stopped, with its children, when
// the test or the program that started it ends. Every Stage.Start has
// processes of its own, so that nothing is cached from one run to the next;
// without the router the same Envoy configuration lacks the ext_proc filter, and
// nothing else. Nothing here is linked into a shipped binary.
//
// Units: cache sizes in blocks, rates in tokens and steps per second. A Stage is
// for one goroutine; a Running and Ask are safe for concurrent use.
package testenv
