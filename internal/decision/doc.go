// Package decision chooses the replica for a request. It joins the match of the prompt
// and the load of every holder to candidates, which package policy ranks, and charges
// the first.
//
// A Decider answers an Ask with a Decision and the Record that explains it. The
// Decision's Reservation holds two things until the request ends: a charge on a
// load.Account, and the prompt in the history of the holder, by which it counts as coming there
// until events tell. Nothing here depends on the request's form: the router, `lab policy` and
// `lab replay` run the same code.
//
// The invariants: Decide never fails and never waits; a request that cannot be placed
// gets a Decision without a destination and with the Reason. Each charge of a decision
// is released exactly once. The reasons are a closed set.
//
// Pressure counts, per model, how often a load guard sent a request away from the
// replica that had its prefix: a sign that the model needs more replicas, made for an
// autoscaler. Reading drains nothing: an occurrence counts for the window after it
// happened, to within a sixtieth of it, or until its model is Reset after the
// autoscaler has acted on it.
//
// Units: tokens of prompts, blocks of one scope's block size, seconds of prefill.
// Decider, Pressure and Ring are safe for concurrent use; a Work belongs to one
// goroutine at a time.
package decision
