// Package prefill sends the prefill legs of requests whose prompt one replica computes and
// another one answers.
//
// A leg is the client's body with one token to generate, sent to the replica that computes
// the prompt. Its answer has kv_transfer_params, by which the other replica takes the blocks:
// a capability on one prompt's cache that may be used once. They are bytes that nobody here
// reads.
//
// The invariants: a leg goes only to the address that its caller names, over the fleet's own
// HTTP client, and follows no redirect; legs under way, connections to a replica and bytes
// of an answer are bounded; a leg ends when its context does; when Send returns, nothing
// reads the body any more. Text of a body or an answer is in no error.
//
// A Sender is safe for concurrent use.
package prefill
