// Package publisher publishes KV events over ZeroMQ as one data-parallel rank of
// vLLM does (vllm/distributed/kv_events.py): a PUB socket that numbers payloads, and
// a ROUTER socket that replays the last of them. It is for simulated replicas and
// for tests, and causes the faults of the field on demand: payloads that are
// dropped, late or lost, broken connections, restarts.
//
// The invariant: the replay buffer has the published payloads in order, except
// payloads lost on purpose, whatever happened to the live copies. A subscriber that
// reads too slowly loses payloads beyond a high-water mark, as with ZeroMQ.
//
// The protocol (ZMTP 3.0 with the NULL mechanism, no heartbeats) is this package's
// own, so that the router's subscriber, which uses go-zeromq/zmq4, is tested against
// another implementation. Safe for concurrent use.
package publisher
