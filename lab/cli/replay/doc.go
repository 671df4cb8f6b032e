// Package replay answers, from a log of requests, what hit rate, time to
// first token and balance each routing policy would have had: it runs the log
// through the simulator (lab/simulator) under the real decision and the
// published policies, and writes a table and a plot.
//
// Bodies are compared by their text, in blocks of 2 KiB (512 tokens at four
// bytes each), so that no tokenizer is needed; the block ids of logs that
// have them are not checked. No text is kept or written anywhere. The invariant: every policy
// gets the same requests at the same times.
package replay
