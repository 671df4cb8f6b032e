// Package ends records where hits may end in caches that have more groups than full
// attention.
//
// Such a cache hits a prompt up to a block's end at which all its groups have what
// they need: a window the blocks before it, a Mamba state the block itself, chunked
// attention the blocks since the chunk began. Of the ends up to which full
// attention holds the prompt without a gap, the last one is the hit. That is vLLM's
// fixed point over the groups where no group drops a block for a draft model: each
// group finds the last end, not behind the one before it, that it allows, and what
// none of them shortens any more is the last end that all of them allow.
//
// A Held is what one holder has of its other groups, as bits along the nodes that
// hold its blocks of full attention (package radix). It works out at which ends the
// holder's Shape is satisfied, and writes them into the Table that all holders of a
// shard share: for each node, stretches of ends with the set of holders for which
// they are satisfied. So a lookup reads sets, from a prompt's end backwards, until
// every holder is decided (Table.Narrow); it probes no block.
//
// Invariants: a holder is at an end in the Table only while it has the block before
// it in full attention; the stretches of a node ascend, do not overlap, and have
// no empty set. One writer at a time changes a Table and its Helds, the one of its
// radix.Nodes. Narrow is for lookups, which have entered an epoch; it takes no lock.
// Lengths are in blocks of full attention.
package ends
