// Package shortfall checks predictions against the truth: the prompt tokens the
// router predicted to be cached on a replica against the tokens the replica reports
// it found in its cache, in tokens both, from counters. A replica that holds
// less than its events report, because hashes, salts or templates are understood
// wrongly, would otherwise go unnoticed: nothing fails, it is only slow.
//
// The invariant: only fewer hits than predicted are held against a replica.
// More are no fault, they are traffic that came around the router. A flag is
// raised and taken back once, not with every window.
//
// A Watch starts nothing and has no clock; it is safe for concurrent use.
package shortfall
