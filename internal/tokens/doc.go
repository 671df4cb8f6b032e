// Package tokens finds the token ids of a request's prompts as vLLM will compute
// them, from wherever they can be had: the body itself, this process, or a
// replica's /render or /tokenize.
//
// The invariant: ids that are handed out are the ids vLLM uses, or a prefix of
// them that says so (Prompt.Partial), or there are none (ErrNone). What is
// computed here is used only for features that a replica has confirmed, and is
// checked against a replica now and then for as long as it is used; the first
// difference ends the trust in that feature.
//
// Nothing here holds a request up: a replica is waited for at most a budget, the
// number of questions under way is bounded, and equal questions are asked once.
// Neither texts nor ids go into logs, metrics or errors; the cache is keyed by a
// keyed hash.
package tokens
