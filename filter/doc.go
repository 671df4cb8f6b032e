// Package filter is the ext_proc server: it follows Envoy's streams, obtains a
// decision for each request, and sets the header that names the replica.
//
// One stream is one HTTP request. Server.Process receives a message, calls one
// step of the stream, and sends the answers. A stream belongs to one goroutine; in
// FULL_DUPLEX_STREAMED mode a timer ends the wait for a body, and both lock the
// stream. Messages and answers are in memory that later streams reuse (memory).
// Router.Route reads a request's body, finds its token ids and calls a
// decision.Decider. It never fails: a request that cannot be decided gets a
// Decision without a hint, with the Reason.
//
// The invariants: a body is never changed and never re-marshalled (what a decode replica
// needs of a prefill leg goes beside it, and Envoy puts it in: split.go); a request never
// gets an error from the router, except in endpoint-picker mode and if a defect
// occurs after the wait for its body was given up; header and metadata always
// carry the same value; a decision's reservation is released exactly once, when
// its stream ends.
//
// Router is safe for concurrent use. Nothing here waits on a lock that KV event
// ingest, discovery or scraping holds.
package filter
