//go:build !race

package hashtable

const raceEnabled = false
