// Package radix keeps chains of blocks in a radix tree, and how much of them each
// holder has.
//
// A Node is a stretch of a chain of at most 16,384 blocks: their keys in one array,
// and the hashes of the holder that stored them first. Where chains part, nodes begin
// that refer to the block they follow (parent). A node has for each holder only
// blocks whose predecessors the holder has too, so along a chain the sets of holders
// only shrink, and a node's runs record where: each run is a stretch that one set
// holds. A Tree is the nodes of one scope; it finds a node by its first key and the
// block before it (heads), or by the key of a checkpoint, one block in so many along a
// prompt. Nodes are all nodes of a shard. A Holding is one holder's part of them: its
// hashes of blocks, and the blocks after which it continues in another node.
//
// Blocks without holders are removed from the end of a node, except blocks that other
// nodes follow.
//
// One writer at a time changes nodes, trees and holdings. Tree.Trace is for lookups,
// which have entered an epoch and take no lock.
//
// # Why made-up keys mislead about nobody else
//
// Links have no secret: a holder can make up contents that give a block another block's
// key behind a parent of its own. Writers find a block by its key and the place before
// it, so blocks with one key behind two others are two blocks. But a lookup jumps to a
// checkpoint by its key alone, and searches a node's keys as if blocks with equal keys had
// equal keys before them. So it checks each block with which a holder may leave its path:
// where a node begins, and behind each run. The node and the run have that block's mark,
// 24 bits of a hash of its key and the key before it, keyed with a secret of the process.
// If the mark is that of the prompt's keys, the holder's last block has the prompt's key.
// A holder without made-up blocks has no other block with this key than the prompt's, so
// the blocks before are the prompt's too, and the holder lacks the next. If a mark
// differs, the lookup goes from node to node and compares each key. Only what holders
// that have the made-up blocks match can be wrong.
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
