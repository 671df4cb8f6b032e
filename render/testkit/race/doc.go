// Package race reports to tests whether the race detector is on. With the race detector,
// pools drop items at random, so that pooled code allocates, and all code takes five to
// ten times as long.
package race
