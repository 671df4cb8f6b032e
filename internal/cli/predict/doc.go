// Package predict predicts offline which prompts a vLLM would find cached: it reads
// KV event frames and queries as JSON lines and answers each query.
//
// Invariant: the answers are the router's predictions for a replica with these
// events. The frames go through its decoder and its index, the queries through
// index.FindPrompt; nothing is decided here. A line that cannot be used is answered
// with an error that names it, and changes nothing. Counts are in tokens. A
// Predictor is for one goroutine.
package predict
