// Package learned learns quotients from what replicas show: a speed, the time of a load, the
// share of tokens that are found, the length of answers.
//
// The invariant: a Ratio has the sums of the latest observations alone. What an observation may
// say at most, and what counts before the first one, is its owner's to bound: Near and a prior.
//
// Units: the owner's. Everything is safe for concurrent use, and waits for nobody.
package learned
