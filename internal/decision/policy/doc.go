// Package policy decides which KV caches a request should go to: a ranked list
// with a verdict for every candidate, or none.
//
// The invariant: Pick is a pure function of its arguments. Loads, matches and
// the request's ordinal come in as numbers, nothing is read from a clock, so
// that recorded arguments always yield the same result. What may change at run
// time is in Settings, an immutable value that a Book hands out per model: one
// request is judged by one Settings.
//
// Units: tokens for matches and lengths, seconds for costs. All functions are
// safe for concurrent use; scratch memory is the caller's. The package keeps no
// loads and no matches, and reads no request.
package policy
