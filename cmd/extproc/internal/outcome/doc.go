// Package outcome takes Envoy's access log entries of requests that had a hint,
// and counts what became of the hint. Envoy sends them behind a request's end,
// by a stream of its own (access log service), so they cost no request anything
// and need no response phase. What is lost while the router is away is not
// counted.
//
// Server may be called from any goroutine.
package outcome
