// Package shortfall checks predictions against the truth: the prompt tokens the
// router predicted to be cached on a replica against the tokens the replica reports
// it found in its cache, both from counters. A replica that holds less than its
// events report, because hashes, salts or templates are interpreted wrongly, would
// otherwise not be detected: nothing fails, requests are only slow.
//
// The invariant: only fewer hits than predicted count against a replica. More hits
// are no fault: they come from traffic that bypassed the router. A flag is raised
// and taken back once, not with every window. It is raised after 10 requests whose
// blocks a replica reported and did not find, or after three windows below the
// share, and taken back when what it reports is found again.
//
// A Watch starts nothing and has no clock; it is safe for concurrent use.
package shortfall
