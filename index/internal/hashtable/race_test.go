//go:build race

package hashtable

const raceEnabled = true
