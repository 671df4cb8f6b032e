// Package outcome receives Envoy's access log entries of requests that had a hint,
// and counts the outcomes of hints. Envoy sends them after a request's end, by a
// separate stream (access log service), so they delay no request and need no
// response phase. Entries that are lost while the router is away are not counted.
//
// Server may be called from any goroutine.
package outcome
