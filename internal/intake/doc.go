// Package intake reads replicas' answers within one bound on the bytes of all that are being
// read: those to questions about token ids, and those to prefill legs.
//
// The invariant: memory is counted before it is taken, whatever length an answer announces, and
// given back once, by Return or by a Read that fails.
//
// Units: bytes. A Budget may be used from any goroutine.
package intake
