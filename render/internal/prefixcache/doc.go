// Package prefixcache keeps values for the beginnings of texts. Its keys are hashes of
// the beginnings, not the texts.
//
// Entries form a tree. The parent of an entry is the entry of a shorter beginning, and
// an entry's value adds to its parent's. A full cache evicts the least recently used
// leaf, so an entry's ancestors stay as long as the entry.
//
// The invariant: no text finds the entry of another text. A hash has 128 bits, and its
// seed is a random number that never leaves the process, so nobody can prepare two
// texts with one hash; among 2^40 entries two would collide by chance once in 2^49
// processes.
//
// A Cache is safe for concurrent use. An Entry's value does not change once a look-up
// can find the entry.
package prefixcache
