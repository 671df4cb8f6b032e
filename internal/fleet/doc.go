// Package fleet keeps the list of replicas: which models each one serves and
// how loaded it is.
//
// Sources (a static list, DNS, anything with the one method of [Source]) give
// addresses. From an address the fleet learns the rest over HTTP: model names,
// aliases and adapters (/v1/models), the version, the KV event endpoints per
// data-parallel rank (/kv_event_sources, vLLM ≥ 0.32), block size and load
// (/metrics, once a second), and whether the render routes answer. A configured
// value always has priority over a learned one. SGLang, known by the owner of its models,
// says most of it at /server_info, and is asked for /ready in place of /health.
//
// Invariants: readers only ever see an immutable [Snapshot], in which replicas are
// sorted by address; [Snapshot.Serving] offers ready replicas only; every join has
// a higher number than the one before, is announced by one call of Hooks.Joined
// before the replica is offered, and ends with exactly one call of Hooks.Left
// after it is no longer offered. All of that happens in one goroutine, and leaving
// in one function.
//
// A replica is gone when neither /metrics nor /health has been answered for
// Options.DeadAfter, counted from the start of the last answered request; when its
// process start time or counters show another process; when it does not tell its start
// time, and answers again after nothing listened there or it was loading; or when its
// source no longer lists it. If that would leave a model without a ready replica while new
// ones replace it, it stays until one of those is ready, a second at most. A
// replica that returns is learned again.
//
// Units: times are seconds if they are float64, prefix queries and hits are
// tokens, KV usage is a share from 0 to 1.
//
// Concurrency: one goroutine per replica does that replica's HTTP, so a slow
// replica delays no other; replicas that do not answer share a few slots and back
// off. Memory is bounded for every answer. Snapshot may be called from any
// goroutine, costs one atomic load, and never waits.
//
// The package does not choose replicas, keeps no blocks, and reads no events.
package fleet
