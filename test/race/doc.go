// Package race tells tests whether the race detector is on. With it pools drop at
// random what they hold, so that pooled code allocates, and everything takes five
// to ten times as long.
package race
