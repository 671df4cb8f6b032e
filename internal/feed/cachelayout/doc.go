// Package cachelayout says which KV cache groups vLLM makes of a model, by the
// model's config.json.
//
// vLLM's layers register in order; layers of one kind and window make groups, all
// of about the same number of layers, in the order in which their kinds come first.
// A Layout is what results: the kinds and windows of the groups, by number, and the
// chunk of chunked attention. How large a group's blocks are is not in it: events
// show that.
//
// Invariant: only models whose layers vLLM is known to arrange so have a Layout; of
// any other the error is ErrUnknown. A Layout is of the model as its files say it,
// without a draft model's layers and with vLLM's own defaults: what a server makes
// of it may differ, so a Layout is held against what arrives. It is immutable.
package cachelayout
