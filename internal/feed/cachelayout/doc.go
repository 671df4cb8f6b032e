// Package cachelayout derives the KV cache groups that vLLM makes for a model from
// the model's config.json.
//
// vLLM's layers register in order; layers of one kind and window make groups, all
// of about the same number of layers, in the order in which their kinds come first.
// A Layout is the result: the kinds and windows of the groups, by number, and the
// chunk of chunked attention. It does not have the block sizes of the
// groups: events show them.
//
// Invariant: only models whose layers vLLM is known to arrange so have a Layout; for
// any other the error is ErrUnknown. A Layout describes the model in its files,
// without a draft model's layers and with vLLM's own defaults: a server's groups may
// differ, so a Layout is compared with the events that arrive. It is immutable.
package cachelayout
