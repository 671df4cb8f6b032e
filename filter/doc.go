// Package filter is the ext_proc server: it follows Envoy's streams, decides
// where each request should go and sets the header that says so.
//
// One stream is one HTTP request. Server.Process receives a message, lets the
// stream take one step, and sends the answers; a stream belongs to one
// goroutine, except in FULL_DUPLEX_STREAMED mode where a second one receives.
// Router.Route turns a request into a Decision. It never fails: what cannot be
// judged is a Decision without a hint and with the Reason why.
//
// The invariants: a body is never changed and never re-marshalled; a request
// never gets an error of ours, outside endpoint-picker mode; header and
// metadata always carry the same value; what a decision charges to a replica's
// load is released exactly once, when its stream ends.
//
// Router, Ledger and Ring are safe for concurrent use, with one exception:
// Ledger.Applied may be called for one holder by one goroutine at a time.
// kvevents.Subscriber calls it from its Run alone, live and replayed batches
// alike; feed starts the subscription of a replica's new incarnation after the
// former one has ended; reports of a sidecar never reach it. Nothing here waits on a
// lock that KV event ingest, discovery or scraping holds.
package filter
