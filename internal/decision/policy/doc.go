// Package policy ranks the holders for a request, with a verdict for every candidate.
//
// The invariant: Pick is a pure function of its arguments. Loads, matches and the
// request's ordinal are numbers, and no clock is read, so recorded arguments always yield
// the same result. Settings are immutable; a Book replaces a model's Settings at run
// time, and one request is judged by one Settings.
//
// Units: tokens for matches and lengths, seconds for costs. All functions are safe for
// concurrent use; scratch memory is the caller's. The package keeps no loads and no
// matches, and reads no request.
package policy
