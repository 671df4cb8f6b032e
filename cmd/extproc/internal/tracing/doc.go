// Package tracing makes OpenTelemetry spans of the router's decisions and sends
// them to a collector over OTLP/gRPC.
//
// The invariant: a request never waits for it. A span is made only of a request
// whose own trace is sampled, after the decision is taken; it goes into a bounded
// queue, which drops spans when it is full, and one goroutine sends them. Spans
// hold names and numbers of a decision's record, never text of a prompt.
//
// A Tracer is safe for concurrent use. Run sends the remaining spans, for a bounded
// time, when its context ends.
package tracing
