// Package tokens finds the token ids of a request's prompts as vLLM will compute
// them, from one of three sources: the body itself, this process, or a replica's
// /render or /tokenize.
//
// The invariant: returned ids are the ids that vLLM uses, or a prefix of them
// that is marked as one (Prompt.Partial), or there are none (ErrNone). Ids
// computed here are used only for features that a replica has confirmed, and are
// regularly compared with a replica's for as long as they are used; a difference that
// two replicas show, or the only one, and none contradicts, ends the trust in that
// feature. No replica decides alone for the others what is right.
//
// Nothing here holds a request up: it waits at most a budget for a replica, the
// number of questions under way is bounded, and equal questions are sent once.
// Neither texts nor ids go into logs, metrics or errors; the cache is keyed by a
// keyed hash.
package tokens
