// Package filter is the ext_proc server: it follows Envoy's streams, has a decision for
// each request where it should go, and sets the header that says so.
//
// One stream is one HTTP request. Server.Process receives a message, lets the
// stream take one step, and sends the answers. A stream belongs to one goroutine;
// in FULL_DUPLEX_STREAMED mode a timer ends the wait for a body, and both lock the
// stream. Messages and answers are in memory that streams hand on (memory).
// Router.Route reads a request's body, finds its token ids and asks a
// decision.Decider. It never fails: a request that cannot be decided gets a Decision without
// a hint and with the Reason why.
//
// The invariants: a body is never changed and never re-marshalled; a request
// never gets an error of ours, outside endpoint-picker mode and where a defect met
// a body that was given up; header and
// metadata always carry the same value; what a decision reserves is released
// exactly once, when its stream ends.
//
// Router is safe for concurrent use. Nothing here waits on a lock that KV event
// ingest, discovery or scraping holds.
package filter
