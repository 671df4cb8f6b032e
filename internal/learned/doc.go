// Package learned learns quotients from what replicas show: a speed, the time of a load, the
// share of tokens that are found, the length of answers; and what was sent lately.
//
// The invariant: a Ratio forgets by a share with each observation, so that no value stays for
// ever. What one observation may say at most, and what counts before the first, are its owner's
// to bound: by Near, and by a prior.
//
// Units: the owner's. A Ratio is safe for concurrent use, and waits for nobody; a Fading is guarded by
// its owner.
package learned
