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
// CPU memory and storage are kept apart. A block's parent is looked up by its name
// among the same holder's blocks, as names are each holder's own; a block whose
// parent is not among them yet waits for it, in a bounded store. Begin, Remove and
// Cleared take effect for every lookup that starts after they return; a batch of
// an earlier incarnation is refused. A holder that reports several cache groups
// matches nothing until the full-attention one is known (Match.HybridUnknown).
// What only a request's routing suggests (Speculate, Learn), or what a reporter
// may not take back (Report), ends at a deadline.
//
// # Structure
//
// A scope's blocks are kept in nodes. A node is a stretch of a chain of at most
// 16,384 blocks: their keys in one array, and levels, which say who has how much
// of it. Where prompts part, nodes begin that know the block they follow. A node
// is found by its first key (heads), or by one of its marked blocks (marks), every
// 128th of a prompt. Levels name sets of holders, which are immutable and interned,
// so that equal numbers mean equal sets. A node has for each holder only blocks
// whose predecessors the holder has too, so along a chain sets only shrink: a
// lookup finds the node of the first key and, when the prompt goes on behind it,
// jumps to the last marked block that is there, climbs from it to the nodes before,
// and compares keys only behind it. Who holds what is then read from one level
// after another, not from blocks.
//
// What a holder calls its blocks is in a lane of its own: fingerprints and places
// in buckets of a cache line, believed when the node has the name there. Names
// that are not the node's, because engines of other seeds stored the block first,
// are in a dict, with the place of the block. Blocks behind a hole are kept overlay
// the nodes, by name and by parent, and move back when the hole fills; to find
// them, a hole in the middle costs one pass over the holder's names. Heads and
// marks are fingerprints in such buckets too, believed when the node has the key.
// Blocks below the GPU are in hash tables of 24-byte slots, by key. Lanes, tables
// and the larger arrays of nodes are outside the Go heap, in huge pages where there
// are any (pool); nodes and small arrays are on it.
//
// Where a cap is reached, the ends of nodes that nobody has stored in for long go,
// 1/256 of the cap at a time, and their holders are marked incomplete.
//
// # Concurrency
//
// Lookups take no lock and wait for nobody. They announce an epoch; what writers
// take away is reused only when no lookup that could see it is running. A reader
// of a node loads its state, its levels and the place of its keys, and its state
// again: the state counts the times that blocks were taken off the end, and while
// that has not changed, the array is of the blocks that the state says. Keys that a
// reader may have seen are not overwritten, but replaced with their array.
//
// Lanes, dicts and all counts are the writer's, who is serialised per holder and
// per (tenant, model, group). Speculate, Withdraw, Learn, Report and ID wait for
// no lock that ingest holds. Run sweeps in the background, a thousand buckets of
// names at a time under the lock; the index does no I/O, and its clock is an
// option. Close returns the memory.
package index
