// Package feed keeps one KV event subscription per data-parallel rank of every
// replica in the fleet, from the moment it joins until it has left, and applies
// their batches to the index.
//
// The invariant: a replica's departure is one function, run once. It ends the
// subscriptions, waits for them, and only then removes the replica's blocks, so that
// no late batch brings anything back; a replica that returns under the same address
// starts after that.
//
// Subscriptions that join take over the holders that were restored from a peer
// (Resume), and have their publishers confirm them. A restored holder that no
// subscription takes over within SyncTimeout is removed.
//
// Join and Leave return at once and may be called from one goroutine at a time, as
// fleet.Hooks are. Everything else is safe for concurrent use.
package feed
