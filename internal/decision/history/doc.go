// Package history records what was sent where, and expects it in a replica's cache for as
// long as the replica's engine would keep it (Cache.Match): for replicas that do not report their
// blocks. Of the others it knows what is on its way there until their events tell (Cache.Coming),
// and of all what they would evict (Cache.Worth).
//
// A Cache is the model of one holder's cache: the keys of prompts at their marks
// (prefixhash.Marks), and the answers' tokens, which no prompt is known to match. What was
// used least recently goes first, the end of a prompt before its beginning, as soon as the
// tokens exceed the capacity. A Cache holds the prompts of all models of a replica, as the
// replica's cache does: keys of different models differ.
//
// Keys are kept in nodes, which are stretches of a prompt that were always used together.
// The invariant: a node is never newer than the node before it, so the oldest node has
// none behind it and dropping its end strands nothing; the tokens of a Cache are the sum of
// its nodes', and exceed the capacity only while one node alone does.
//
// Units: tokens. Everything here is safe for concurrent use; a Cache's lock is held for one
// walk along a prompt's keys.
package history
