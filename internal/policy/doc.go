// Package policy decides which KV caches a request should go to: a ranked list
// with a verdict for every candidate, or none.
//
// The invariant: Pick is a pure function of its arguments. Loads, matches and
// the request's ordinal come in as numbers, nothing is read from a clock, so
// that a recorded Input always yields the same Decision.
//
// Units: tokens for matches and lengths, seconds for costs. All functions are
// safe for concurrent use; scratch memory is the caller's.
package policy
