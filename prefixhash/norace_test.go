//go:build !race

package prefixhash

const raceDetector = false
