// Package tracefile writes the trace file: one line of JSON for each decided
// request, from which `lab replay` computes what routing saves.
//
// The file has no text, no token ids and no hashes: a Writer numbers the blocks of
// prompts in the order in which they first appear, and a line names a prompt's blocks by
// ranges of these numbers. Blocks have equal numbers if and only if they have equal keys
// (and the Writer still remembers the block); the numbers of two runs of the router have
// nothing in common. A later line tells how the request ended.
//
// Invariant: a request waits for nobody here and allocates nothing once the pools are
// warm. Writer.Run alone touches the file. When the queue is full or the disk refuses a
// line, the line is lost and counted.
//
// Units: times are Unix seconds in lines and time.Time in memory; lengths are tokens,
// blocks or bytes, as their names say. A Writer is safe for concurrent use.
package tracefile
