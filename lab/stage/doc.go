// Package stage runs a fleet for comparisons: simulated replicas behind a real
// Envoy on the loopback interface, with the router or without.
//
// The invariants: every Stage.Start has processes of its own, so that no run finds
// another run's caches; without the router, the same Envoy configuration lacks the
// ext_proc filter and nothing else.
//
// Units: cache sizes in blocks, rates in tokens and steps per second. One goroutine may
// use a Stage; a Running is safe for concurrent use.
package stage
