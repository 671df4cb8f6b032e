// Package spans records which blocks holders have, besides those of full attention, along the
// nodes of a shard.
//
// A Table has for each node spans of blocks with the set of holders that have them. A holder is
// in a span only while it has the span's blocks in full attention, too; one that has ended stays
// until Sweep. The spans of a node ascend, do not overlap, and have no empty set.
//
// One writer at a time changes a Table, the writer of its radix.Nodes. Of and At
// are for lookups, which have entered an epoch; they take no lock.
package spans
