// Package prefixhash turns prompts into chains of block keys. An index stores the keys of
// reported blocks, and a lookup asks for the keys of a prompt.
//
// A block is blockSize consecutive tokens; only full blocks have keys. Every
// key depends on all blocks before it, so equal keys mean equal prefixes and a
// match is found by comparing keys from the first block on. There are three
// kinds of chain:
//
//   - The token chain (AppendTokens; in halves AppendContents and AppendLinks):
//     64-bit keys over token ids and extra keys. It needs nothing from a replica
//     but the token ids in its KV events, so it holds for any hash algorithm and
//     any seed the replica runs with.
//   - vLLM's own chains (VLLM): the digests vLLM computes itself, byte for byte,
//     for the four algorithms it offers and both generations of its extra keys.
//     They serve reporters that publish hashes only, and they show which algorithm a
//     replica runs.
//   - The text chain (AppendText): keys over windows of a prompt's bytes, for
//     models without tokens or events. The windows end at Marks and grow along the
//     prompt.
//
// vLLM hashes extra keys into a block besides its tokens, because equal tokens do not
// always mean equal KV: the adapter's name in every block, each multimodal item that
// overlaps the block with its offset from the block's start, and the request's cache salt
// in the first block. Request.AppendExtras
// derives them from a request; KV events publish them.
//
// All chains can be resumed: from the last key or digest they continue as if computed in
// one piece. All are functions of their arguments alone,
// the same in every process and on every machine, so keys may be exchanged.
// The token chain's and the text chain's values are therefore a contract, pinned
// by tests: changing them means a new scheme name in the index.
//
// Functions append to the caller's slices and allocate nothing per block. Bad
// arguments (a block size of zero, a parent that is no full digest) append
// nothing: on a request's way that means "no hint", never a panic.
//
// Everything here is safe for concurrent use. The package does no I/O, reads no
// clock and keeps no state. It does not tokenize, has no
// models or replicas, and puts no token id or prompt text into errors.
package prefixhash
