// Package replay computes from a log of requests the hit rate, time to first token and
// balance of each routing policy: it runs the log through the simulator (lab/simulator)
// under the real decision and the published policies, and writes a table and a plot.
//
// Package replay compares bodies by their text, in blocks of 2 KiB (512 tokens of four
// bytes each), so it needs no tokenizer; it does not check the block ids of logs that
// have them. It keeps and writes no text. The invariant: every policy gets the same
// requests at the same times.
package replay
