// Package shortfall checks predictions against the truth: it compares the prompt
// tokens that the router predicted to be cached on a replica with the tokens that
// the replica reports to have found in its cache. Where enough answers have a usage
// it compares them one by one, otherwise the counters of both. A replica may hold
// less than its events report, because hashes, salts or templates are interpreted
// wrongly. Nothing else shows this: nothing fails, requests are only slow.
//
// The invariant: only fewer hits than predicted count against a replica. More hits
// are no fault: they come from traffic that bypassed the router. A flag is raised
// and taken back once, not with every window. It is raised after 10 requests whose
// blocks a replica reported and did not find, or after three windows below the
// share, and taken back when the replica finds the blocks that it reports again.
// Keys of blocks can be made to collide, so prompts with one first block are one
// vote: by answers, the prompts of more first blocks must have missed than found;
// by counters, the 10 requests have different ones.
//
// A Watch starts nothing and has no clock; it is safe for concurrent use.
package shortfall
