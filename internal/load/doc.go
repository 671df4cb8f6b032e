// Package load counts the requests in flight on every holder, and learns the speed and
// the health of each.
//
// A Ledger has one Account for each holder. A decision puts a Charge on an account; the
// charge ends its prefill when the first token comes and is released when the request
// ends. What a decision reads of an account is a policy.Load.
//
// The invariant: every charge that is put is taken off exactly once, so the sums of an
// account are zero when nothing is in flight. A charge on a dropped account no longer
// affects any load.
//
// Events show first tokens: a charge may have a sentinel, the content of the block whose
// KV event follows the first token. Without such an event, the first token counts as
// come when it is due.
//
// Units: nanoseconds since 1970 for times, nanoseconds or seconds of prefill as named,
// tokens of context.
//
// Ledger.Lock makes reading the accounts, choosing and charging one step; methods that
// need it document it. Everything else is safe for concurrent use and takes no lock,
// with one exception: Ledger.Applied may be called for one holder by one goroutine at a
// time. kvevents.Subscriber calls it from its Run alone, live and replayed batches
// alike; feed starts the subscription of a replica's new incarnation after the former
// one has ended; reports of a sidecar never reach it.
package load
