// Package race reports to tests whether the race detector is on. With it, pools drop
// items at random, so that pooled code allocates, and everything takes five to ten
// times as long.
package race
