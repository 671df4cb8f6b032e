// Package tracereader reads trace files (package tracefile), as `lab replay` does.
//
// The invariant: what it gives keeps the promises of its types, whatever is in the file; a line that
// does not is an error with its number. A Reader belongs to one goroutine.
//
// Units: tokens, blocks, Unix seconds in lines and time.Time in memory.
package tracereader
