// Package index knows which KV cache holds which block of which prompt.
//
// Caches are Holders (a replica's data-parallel rank). They report what they
// store, remove and clear in Batches; Lookup then says, for the chain of keys
// of a prompt, how many blocks each holder has from its start without a gap.
// Keys live in Scopes (tenant, model, adapter, hash scheme, block size, cache
// group) and never match across them. An empty scheme is never stored and never
// matched.
//
// What is kept of a block is its 64-bit key, the engine's hash of it, and who
// holds it: no token and no text. Keys are believed: two blocks of one scope
// whose 64-bit keys are equal are one block (about 3 in a million for ten
// million blocks).
//
// # Truth
//
// A block that a holder lost in the middle of a prompt ends its match exactly
// there. Copies are counted: a block announced twice is gone after two removals,
// unless the holder is known to announce blocks again (Batch.Full). Copies in
// CPU memory and storage are kept apart. A block whose parent is not known yet
// waits for it, in a bounded store. Begin, Remove and Cleared take effect for
// every lookup that starts after they return; a batch of an earlier incarnation
// is refused. A holder that reports several cache groups matches nothing until
// the full-attention one is known (Match.HybridUnknown). What only a request's
// routing suggests (Speculate, Learn), or what a reporter may not take back
// (Report), ends at a deadline.
//
// # Structure
//
// A scope's blocks are in a hash table of 24-byte slots outside the Go heap: key,
// number of the set of holders, and a child. Sets are immutable and interned, so
// equal numbers mean equal sets. The table holds for each holder only blocks
// whose predecessors it holds too, hence along a chain sets only shrink, and a
// lookup finds where each holder ends by searching, with about two probes when
// all agree; where they differ at every block it walks. Blocks behind a hole are
// kept beside the table and move back when the hole fills.
//
// # Concurrency
//
// Lookups take no lock and wait for nobody. What writers take away is reused
// only when no lookup that could see it is running. Ingest is serialised per
// holder and per (tenant, model, group). Speculate, Withdraw, Learn, Report and
// ID wait for no lock that ingest holds. Run sweeps in the background; the index
// does no I/O, and its clock is an option. Close returns the memory.
package index
