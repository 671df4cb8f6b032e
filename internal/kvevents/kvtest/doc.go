// Package kvtest encodes KV events for tests and publishes them (package publisher)
// as vLLM does, with faults that a test chooses.
//
// The encoders use vmihailenco/msgpack, so they share no code with package kvevents,
// which they test. Safe for concurrent use.
package kvtest
