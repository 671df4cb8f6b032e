// Package stage runs a fleet for comparisons: simulated replicas behind a real
// Envoy on the loopback interface, with the router or without.
//
// The invariants: every Stage.Start has processes of its own, so that nothing is
// cached from one run to the next; without the router the same Envoy configuration
// lacks the ext_proc filter, and nothing else.
//
// Units: cache sizes in blocks, rates in tokens and steps per second. A Stage is
// for one goroutine; a Running is safe for concurrent use.
package stage
