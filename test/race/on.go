//go:build race

package race

// Enabled says whether the tests were built with the race detector.
const Enabled = true
