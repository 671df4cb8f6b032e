// Package stage runs what a comparison of routing needs on the loopback
// interface: simulated replicas and a real Envoy, with the router or without.
//
// The invariant: every Start has processes of its own, so that nothing is cached
// from one run to the next, and Close ends all of them. Without the router the
// same Envoy configuration lacks the ext_proc filter, and nothing else.
//
// Units: cache sizes in blocks, rates in tokens and steps per second. A Stage is
// for one goroutine; a Running and Ask are safe for concurrent use.
package stage
