// Package indexrpc serves an index over gRPC (contract: index/indexpb) to
// reporters and readers outside the router's process.
//
// Invariant: a replica's reports are applied in the order its calls arrive, each
// whole; the replica is the one named by the call, even if its stats name another.
// Reports are deltas and idempotent: repeating one
// changes nothing, and what one does not mention stays. An empty hash scheme is
// never stored and never matched.
//
// LookupRoute answers at once from what is known and fails open: NO_HINT with a
// reason of a closed set, never an error.
//
// A replica is fed either from here or by the router's own subscriber, not both:
// the feed that begins it last is the one that counts.
//
// A snapshot (StreamSnapshot, Fetch) holds only what the index's own process
// follows, with the place in every publisher's stream.
//
// Concurrency: everything is safe for concurrent use; reports of one replica
// wait for each other, lookups never wait. Units: tokens, blocks, milliseconds
// of Unix time on the wire.
//
// It keeps no token ids (none come) and does not discover replicas. Who may
// connect is decided by what Serve is given: TLS, and a Token's options (access.go).
package indexrpc
