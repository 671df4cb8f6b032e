// Package kvevents follows the KV-cache events of one replica's data-parallel rank and
// passes them, decoded and free of token ids, to a Sink.
//
// Invariant: since its last Begin, the Sink has received the publisher's events in the
// publisher's order, without holes. A batch is applied completely or not at all. If a hole
// cannot be filled (the publisher's replay buffer no longer reaches back, there is no
// replay endpoint, a batch cannot be decoded), Begin empties the Sink first, so that it
// never holds a block whose removal might be in the hole.
//
// A subscriber may continue from a Cursor of another one (Options.Resume): the publisher
// has to prove first that it is still the same.
//
// Wire: ZeroMQ PUB frames [topic, sequence (8 bytes, big-endian), msgpack payload]; both
// generations of vLLM's events (array-tagged as in 0.21, map-tagged as in 0.32) are
// recognised. Adapters say what is different in the events of each engine. Replay is DEALER
// to ROUTER. vLLM source: vllm/distributed/kv_events.py.
//
// The files: cursor.go reads msgpack, decode.go gives the events of event.go, adapter.go and
// the files by the engines' names have what they do not share, convert.go turns them into
// index batches, sequence.go decides which batches are applied, dropped and requested again
// (no I/O, no clock), resume.go continues from another sequencer's place,
// conn.go is one ZMTP connection, replay.go one replay, room.go bounds the bytes in memory,
// pause.go the attempts at a publisher that causes trouble, subscriber.go joins them,
// options.go has the Options and the Sink, status.go the Status.
//
// Concurrency: Run owns all state and is the only caller of the Sink; any goroutine may
// call Status. Units: token counts in tokens, hashes as the low 64 bits, big-endian, of
// vLLM's digest, or SGLang's integers.
//
// It does not discover replicas, does not resolve adapters or aliases, and keeps neither
// token ids nor cache salts longer than hashing them takes.
package kvevents
