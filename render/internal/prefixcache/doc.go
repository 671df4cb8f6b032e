// Package prefixcache keeps results about the beginnings of texts by the
// beginnings' hashes, not by the texts.
//
// Entries form a tree: each holds what it adds to its parent, the entry of a
// shorter beginning. The least recently used leaf goes first when the cache is
// full, so that an entry's ancestors are there for as long as it is.
//
// The invariant: an entry is never found by another text than its own. Its hash has
// 128 bits and is keyed by a random number that never leaves the process, so that
// two texts with one hash cannot be prepared; among 2^40 entries two would collide
// by chance once in 2^49 processes.
//
// A Cache is safe for concurrent use; its lock is held for look-ups only. An Entry
// does not change once it can be found.
package prefixcache
