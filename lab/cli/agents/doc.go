// Package agents is the command `lab agents`: sessions of coding agents in a closed loop, whose
// contexts together exceed the replicas' KV caches, under this router's decision with and without
// held prompts, and under two rivals that know sessions by their ids: a naive hold and Progress-TTL.
//
// The invariant: every policy gets the same sessions in the same order at each of the same places,
// and the engines schedule as vLLM does (lab/simulator). A step takes its prompt tokens at the
// prefill rate, at least 25 ms unless set. Prompts are in blocks of 32 tokens, allocated by 16.
// Requests count from the time by which all places have started.
//
// Units: seconds of virtual time, tokens. A run belongs to one goroutine.
package agents
