// Package ends records where hits may end in caches that have more groups than full
// attention.
//
// There are only three types in ends: Shape, Held and Table. A Shape is the blocks that the
// other groups need before an end: a window the blocks before it, a Mamba state the block
// itself, chunked attention the blocks since the chunk began. A Held records the blocks that
// one holder has in these groups, as bits along the nodes of its full attention (package
// radix), and works out its ends. A Table has the ends of all holders of a shard: for each
// node, spans of blocks with the set of holders whose hits may end there.
//
// A cache hits a prompt up to the last end that full attention reaches without a gap. That
// is vLLM's fixed point if no group drops a block for a draft model: each group finds the
// last end, not behind the end of the group before it, that it allows; the last end that
// all groups allow is the one that no group shortens. A lookup reads the sets from the
// prompt's end backwards until every holder is decided (Table.Narrow); it probes no block.
//
// Invariants: a holder is at an end in the Table only while it has the block before it in
// full attention; the spans of a node ascend, do not overlap, and have no empty set. One
// writer at a time changes a Table and its Helds, the writer of its radix.Nodes. Narrow is
// for lookups, which have entered an epoch; it takes no lock. Lengths are in blocks of full
// attention.
package ends
