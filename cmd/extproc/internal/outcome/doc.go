// Package outcome receives Envoy's access log entries of requests, and makes an Answer
// of each: the replica that served, the prediction that the request carried, and the
// usage that the replica reported in its answer. It counts the outcomes of hints and
// the states of usages; other consumers get the same answers. Envoy sends entries after
// a request's end, by a separate stream (access log service), so they delay no request
// and need no response phase. Entries that are lost while the router is away are not
// counted.
//
// The invariant: an entry's numbers come from outside, so each is bounded when it is
// read, and no name in it becomes a metric's label unless the fleet has that name.
//
// Token counts are of prompts. Server may be called from any goroutine; it calls
// consumers from several.
package outcome
