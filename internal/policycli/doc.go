// Package policycli lets the routing decision be judged from outside: a Brain is
// the real decision (filter.Decider with a real index and ledger) over replicas
// that only exist as numbers, on a clock that whoever drives it sets. Run speaks
// the simulator's external-policy protocol with a Brain, over JSON lines.
//
// The invariant: a Brain decides with the code and the knowledge of the router
// in production. It learns of caches and first tokens from KV events, of strange
// traffic from metrics at 1 Hz, and is never told a first token unless Options
// say so. Nothing in the decision knows that the replicas are not real.
//
// Units: seconds on the virtual clock, tokens. A Brain belongs to one goroutine.
package policycli
