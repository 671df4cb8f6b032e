// Package prompttree records which replica served which prefix, for models whose replicas
// do not report their blocks: a tree of chained block keys for each model.
//
// The invariant: every node on the path of an observed chain names the holder
// that served it last and when; a node is never newer than its parent, so the
// oldest one is always a leaf and dropping it strands nothing. A node is
// alive up to and including TTL after it was seen.
//
// A chain's key already stands for the whole path from the root, so the tree is
// one map from key to node. Units: depth and weight are nodes.
//
// Trees is safe for concurrent use. A model that was never observed has no
// tree. Invalidate takes no lock that Match or Observe hold: the nodes of a holder that
// left do not match from then on, and are dropped as they age.
package prompttree
