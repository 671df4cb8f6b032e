// Package hash computes vLLM's block hashes of requests in JSON lines: the core of `lab
// hash`, for checks of a fleet's hash settings by hand and against other implementations.
//
// One request per line in,
//
//	{"scheme":"sha256_cbor","generation":"tagged","seed":"42","block_size":16,"tokens":[1,2,3],
//	 "lora":["name","/path"],"cache_salt":"s","mm":[["id",offset,length]]}
//
// one answer per line out, in order: {"hashes":["hex",…]}, one digest per full
// block, or {"line":N,"error":"…"} with the line's number from 1. A bad line does
// not stop the others. Lines of white space get no answer.
//
// scheme, generation, block_size and tokens are required. seed is the replica's
// PYTHONHASHSEED; without it vLLM's default applies, if vLLM has one. A null is an absent
// field, and unknown fields are errors. Errors do not repeat token ids, salts and seeds.
//
// Run keeps nothing between lines. Its memory is that of one line, at most jsonlines.MaxLine.
package hash
