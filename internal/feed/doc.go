// Package feed keeps one KV event subscription per data-parallel rank of every
// replica in the fleet, from the moment it joins until it has left, and applies
// what they say to the index.
//
// The invariant: a replica's departure is one function, run once. It ends the
// subscriptions, waits for them, and only then forgets what the replica held, so
// that no late batch brings anything back; a replica that returns under the same
// address starts after that.
//
// What was restored from a peer (Resume) is taken over by the subscriptions that
// join, which have their publishers confirm it; what nobody takes over within
// SyncTimeout is forgotten.
//
// Join and Leave return at once and may be called from one goroutine at a time,
// which is what fleet.Hooks does. Everything else is safe for concurrent use.
package feed
