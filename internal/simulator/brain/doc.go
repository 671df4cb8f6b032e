// Package brain is the router's half of the policy simulator: a Brain is the
// real decision (decision.Decider with a real index and ledger) over replicas
// that exist as numbers only, on a clock that its driver sets. Run connects a
// Brain to the other half over JSON lines, NewPolicy in process.
//
// The invariant: a Brain decides with the code and the knowledge of the router
// in production. It learns of caches and first tokens from KV events, of strange
// traffic from metrics at 1 Hz, and is never told a first token unless Options
// say so. Nothing in the decision knows that the replicas are not real.
//
// Units: seconds on the virtual clock, tokens. A Brain belongs to one goroutine.
package brain
