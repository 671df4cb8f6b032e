// Package indexrpc serves an index over gRPC (contract: index/indexpb) to
// reporters (package reporter) and readers outside the router's process.
//
// Invariant: the reports of a replica are applied one after the other, in the order in
// which its calls arrive. The call names the replica, even if its stats name another.
// Reports are deltas and idempotent: a repeated report changes nothing, and a report
// leaves the blocks that it does not mention. An empty hash scheme is never stored and
// never matched.
//
// LookupRoute reads memory alone and fails open: it answers NO_HINT with a reason from a
// closed set, never an error.
//
// Either a reporter or the router's own subscriber feeds a replica, not both: the one
// that begins last replaces the other's blocks.
//
// A snapshot (StreamSnapshot, Fetch) holds only blocks of publishers that the index's own
// process follows, with the place in each publisher's stream.
//
// Concurrency: everything is safe for concurrent use; reports of one replica
// wait for each other, lookups never wait. Units: tokens, blocks, milliseconds
// of Unix time on the wire.
//
// The package receives no token ids and does not discover replicas. The options of Serve
// decide which clients may connect: TLS, and Guarded (access.go).
package indexrpc
