// Package radix keeps chains of blocks in a radix tree, and how much of them each
// holder has.
//
// A Node is a stretch of a chain of at most 16,384 blocks: their keys in one array,
// and the hashes of the holder that stored them first. Where chains part, nodes begin
// that refer to the block they follow (parent). A node has for each holder only
// blocks whose predecessors the holder has too, so along a chain the sets of holders
// only shrink, and a node's runs record where: each run is a stretch that one set
// holds. A Tree is the nodes of one scope; it finds a node by its first key (heads)
// or by a checkpoint, one block in so many along a prompt. Nodes are all nodes of a
// shard. A Holding is one holder's part of them: its hashes of blocks, and the blocks
// after which it continues in another node.
//
// Blocks without holders are removed from the end of a node, except blocks that other
// nodes follow.
//
// One writer at a time changes nodes, trees and holdings. Tree.Trace is for lookups,
// which have entered an epoch and take no lock.
//
// # Why lookups see blocks of one time
//
// A reader loads a node's state, its runs and the place of its keys, and its state
// again: the state counts the times that blocks were taken off the end (version), and
// while that has not changed, the array has the blocks that the state counts. A
// writer never overwrites keys that a reader may have seen; it replaces their array.
// A run's end moves in place only if a reader of the run before loses nothing by it.
//
// # Why the unsafe code is sound
//
// A node is a cache line, so it has pointers to the first word of its array and of
// its runs instead of slices. keys points to capacity words (and as many for the
// hashes, unless plain) which Nodes allocated together; capacity never shrinks while
// the node has a number, and an array is replaced by a longer one before a state with
// more blocks is stored. So a reader's count of blocks, which it loaded before the
// pointer, is at most the array's length. The words of runs end with one whose end is
// runEnd, and are written before the pointer is stored: reading from the first to
// that one stays inside. Arrays and node numbers are reused through a Limbo, when no
// reader can have the pointer. Every access is to aligned 64-bit words.
package radix
