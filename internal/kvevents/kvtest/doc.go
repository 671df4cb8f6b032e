// Package kvtest is a publisher of KV events for tests: a PUB and a ROUTER
// socket on the loopback that behave as vLLM's do, with the faults one wants.
//
// Invariant: what the test has published is in order in the replay buffer
// unless it was lost on purpose, whatever happened to the live copies.
//
// The encoders use vmihailenco/msgpack and the sockets are served with
// connections of go-zeromq/zmq4, so neither shares code with package kvevents,
// which they test. Safe for concurrent use. It is not for production use: the
// PUB side keeps everything for a slow subscriber up to a high-water mark and
// then drops, as ZeroMQ does, but does no heartbeats and no security.
package kvtest
