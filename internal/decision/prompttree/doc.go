// Package prompttree records which replica served which prefix, for models whose replicas
// do not report their blocks: a tree of chained block keys for each model.
//
// The invariant: every entry on the path of an observed chain names the holder
// that served it last and when; an entry is never newer than its parent, so the
// oldest one is always a leaf and dropping it strands nothing. An entry is
// alive up to and including TTL after it was seen.
//
// A chain's key already stands for the whole path from the root, so the tree is
// one map from key to entry. Units: depth and weight are entries.
//
// Trees is safe for concurrent use. A model that was never observed has no
// tree. Invalidate takes no lock that Match or Observe hold: the entries of a holder that
// left do not match from then on, and are dropped as they age.
package prompttree
