// Package tokenize is the core of `lab tokenize`: JSON lines in, token ids out, for
// people who debug a miss.
//
// Each line is {"text": T, "add_special_tokens": B} (default: B is false) or {"path": P,
// "body": {…}}, a request to a replica, and gives one line {"ids": […]} or {"error":
// "…"}; a request of several prompts gives {"prompts": [[…], …]}.
//
// With a route, each line is the body of a request to it, and gives {"ids": […]} (a list
// of lists for several prompts), {"refused": "reason"} if this process does not compute
// the ids, or {"error": "vLLM's objection"}.
//
// The invariant: every line that is not empty gets one answer, in the order of the lines,
// and Run writes it before it reads the next line. A line without a result does not end
// the run; a line of more than 64 MiB does. Units: token ids in the model's numbers. Run
// uses one goroutine and keeps nothing; runs that share no reader or writer may run at
// once.
package tokenize
