// Package index records which KV cache holds which block of which prompt.
//
// There are only a few types in index: Index, Holder, Scope, Batch and Match. An Index
// knows the caches of a fleet. A Holder is one of them: a rank of a replica. A Scope is the
// space in which keys are compared: tenant, model, adapter, scheme, block size, cache
// group; an empty scheme is never stored and never matched. A Batch is the events that a
// holder publishes at once: blocks stored, removed, cleared (Apply). A Match says how many
// blocks of a prompt a holder has from the start without a gap, or how many tokens it hits
// (Lookup, Find, FindPrompt).
//
// For each block the index keeps its 64-bit key, vLLM's hash of it and its holders; it
// keeps no token and no text. It does not verify keys: two blocks of one scope with equal
// 64-bit keys behind the same block are one block. Honest holders have equal keys behind
// different blocks by chance alone (about 3 in a million for ten million blocks); made-up
// ones of a holder change no other holder's matches.
//
// # Truth
//
// A block that a holder lost in the middle of a prompt ends its match exactly
// there. Copies are counted: a block announced twice is gone after two removals,
// unless the holder is known to announce blocks again (Batch.Full). Copies in CPU
// memory and storage are kept apart. A block's parent is looked up by its hash among
// the same holder's blocks; a block on GPU is left out while a block before it is missing. Begin,
// Remove and Cleared take effect for every lookup that starts after they return; a batch of
// an earlier incarnation is refused. A holder that reports several cache groups
// matches nothing until the full-attention one is known (Ending.Hidden).
// To explain a match (Why), the index remembers the last removals of each holder, and when
// and why it dropped all blocks of one.
// Blocks of a reporter that announces no removals end at a time (Event.Until).
//
// # Example
//
// Three prompts of one scope. Replica 0 holds all of A and the first two blocks of
// B; replica 1 holds all of B and C.
//
//	A = a0 a1 a2 a3      B = a0 a1 b2 b3      C = c0 c1
//
//	node 1   a0 a1 a2 a3      runs: up to 2 {0, 1}, up to 4 {0}
//	            │
//	node 2      └─ b2 b3      runs: up to 2 {1}         parent: a1, node 1 offset 1
//	node 3   c0 c1            runs: up to 2 {1}
//
//	heads    a0 → node 1, b2 behind a1 → node 2, c0 → node 3
//	replica 0's hashes   A's → node 1, offsets 0 … 3
//	replica 1's hashes   a0, a1 → node 1, b2, b3 → node 2, c0, c1 → node 3
//
// Find(B) reads the head a0, then node 1's keys: two are B's. It reads the head b2
// behind a1, whose node's two keys are B's too. Then it reads runs, not blocks: {0, 1} hold
// node 1's first two blocks, {1} holds node 2's. So replica 0 holds 2 blocks, replica
// 1 all 4. In a longer prompt Find searches after the first node for the last
// checkpoint that is indexed, and reads the nodes that lead to it by their parents.
//
// # Structure
//
// The structures are packages below internal, each of which imports only packages before it:
// epoch (when memory may be used again), offheap (memory outside the Go heap),
// hashtable, holderset (sets and slots), radix
// (nodes, runs, a holder's blocks by hash), spans and hybrid (caches with several groups).
// This package has the scopes, the holders and their events: tiers below the GPU, leases, eviction, sweeps and snapshots.
//
// When a cap is reached, the ends of nodes without a recent store are
// evicted, 1/256 of the cap at a time, and explanations of their holders' matches say so. A
// block removed before others costs one pass over its holder's hashes.
//
// # Concurrency
//
// Lookups take no lock and never wait. They announce an epoch; memory that
// writers remove is reused only when no lookup that could see it is running. Writers are
// serialised per holder and per shard. ID waits for no lock that ingest holds. Run sweeps in the background, a thousand nodes
// at a time under the lock; one sweep runs at a time. The index does no I/O,
// and its clock is an option. Close returns the memory.
package index
