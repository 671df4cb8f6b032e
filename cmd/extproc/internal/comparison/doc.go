// Package comparison compares requests that had a hint with requests whose hint was
// withheld by a trial, per base model: how many there were and failed, which part of their
// prompts the replicas found in their caches, and the times to the first and the last byte
// of their answers.
//
// The invariant: an answer counts in at most one group, and only if the router had a
// replica for the request. Which group that is depends on the draw of the trial alone, and
// not on what became of the request, so the groups differ by their hints alone. Requests
// that opted out are in neither.
//
// Numbers come from Envoy's access log. Metrics count from the start of the process, the
// page counts from the last change of the trial's settings: sums of two settings are no
// comparison. Units: tokens of prompts, seconds. Everything is safe for concurrent use.
package comparison
