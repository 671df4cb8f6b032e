// Package tokenize is what `lab tokenize` does: JSON lines in, token ids
// out, for people who debug a miss.
//
// Each line is {"text": T, "add_special_tokens": B} (B is false unless said)
// or {"path": P, "body": {…}}, a request as a replica would get it, and gives
// one line {"ids": […]} or {"error": "…"}; a request of several prompts gives
// {"prompts": [[…], …]}.
//
// With a route, each line is a request's body as it is sent there, and gives
// {"ids": […]} (a list of lists for several prompts), {"refused": "reason"} where
// the ids are not computed in this process, or {"error": "what vLLM objects to"}.
//
// The invariant: every line that is not empty gets one answer, in the order of
// the lines and before the next is looked at; one that cannot be answered does
// not end the run, one of more than 64 MiB does. Units: token ids as the model
// numbers them. Run uses one goroutine and keeps nothing; runs that share no
// reader or writer may run at once.
package tokenize
