//go:build race

package prefixhash

// raceDetector: with it sync.Pool drops things at random, so pooled code
// allocates.
const raceDetector = true
