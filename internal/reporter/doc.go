// Package reporter reports one holder's KV events to an index service elsewhere (contract:
// index/indexpb), as kvsub does beside a replica.
//
// Invariant: once a Flush has succeeded, the index has every block of the reporter's own
// record and no other of the holder. If the index did not accept a report, or has lost the
// holder, the holder is cleared there and all blocks are reported again from the record.
//
// Adds are collected, removals are sent at once, and all adds of a report precede its
// removals. Only hashes are sent, never token ids.
//
// Concurrency: a Reporter is a kvevents.Sink whose methods never wait for the network; one
// goroutine calls Run or Flush. Units: blocks, tokens, milliseconds of Unix time on the wire.
package reporter
