// Package brain is the router's half of the policy simulator: a Brain is the
// real decision (decision.Decider with a real index and ledger) over replicas
// that exist as numbers only, on a clock that its driver sets. Run connects a
// Brain to the other half over JSON lines, NewPolicy in process.
//
// The invariant: a Brain decides with the code and the inputs of the router in
// production. It gets caches and first tokens from KV events and other senders'
// traffic from metrics at 1 Hz; first tokens are reported to it directly only if
// Options request that. Nothing in the decision depends on replicas being simulated.
//
// Units: seconds on the virtual clock, tokens. A Brain belongs to one goroutine.
package brain
